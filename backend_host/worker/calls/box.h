/* Copies of boxes: see box.c. */
#ifndef BACKEND_HOST_BOX_H
#define BACKEND_HOST_BOX_H

#include "cuda_api/wire.h"

/* The chunk that the request lends, or FGV_NO_CHUNK. */
uint32_t fgw_box_chunk(const struct fgv_request_cuMemcpy3DAsync_v2 *fixed);

#endif
