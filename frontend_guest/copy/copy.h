/* What the files of copies share: what lies where, and copies of plain ranges. */
#ifndef FRONTEND_GUEST_COPY_H
#define FRONTEND_GUEST_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "copy/sides.h"
#include "cuda_api/types.h"

/* Looks an address up; CUDA_ERROR_INVALID_VALUE when the copy would leave what lies there. */
CUresult fgv_side_find(struct fgv_side *side, uint64_t address, uint64_t bytes);
/* Copies a range between any two kinds of memory, `waits` being true for the calls without a stream. */
CUresult fgv_copy_range(const struct fgv_side *destination, const struct fgv_side *source, uint64_t bytes,
                        CUstream stream, bool waits);

#endif
