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

/* More pageable memory than this NVIDIA's driver does not put aside: it waits for all that is before the copy. */
#define FGV_COPY_ASIDE_MAX_BYTES (64u << 10)

/* Whether a call without a stream that copies this from the program's own memory returns behind the copy: what came
 * before it has ended then, too, and copies from registered memory have always. */
static inline bool fgv_copy_is_waited_for(enum fgv_memory_kind kind, uint64_t bytes)
{
    return kind == FGV_MEMORY_REGISTERED || (kind == FGV_MEMORY_PAGEABLE && bytes > FGV_COPY_ASIDE_MAX_BYTES);
}

#endif
