/* Copies of boxes: rows and slices between memory and arrays. */
#ifndef FRONTEND_GUEST_BOX_COPY_H
#define FRONTEND_GUEST_BOX_COPY_H

#include <stdbool.h>

#include "copy/sides.h"
#include "cuda_api/types.h"

/* Copies a box whose sides were checked, `waits` being true for the calls without a stream. */
CUresult fgv_box_copy(struct fgv_box *box, CUstream stream, bool waits);

#endif
