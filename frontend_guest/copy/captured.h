/*
 * Copies that a stream captures: a node, by which the device copies between what it reaches. Where a side is ordinary
 * memory of the program the stream captures what fills a buffer before the copy, or drains one behind it, as nodes that
 * the worker keeps to itself.
 */
#ifndef FRONTEND_GUEST_CAPTURED_H
#define FRONTEND_GUEST_CAPTURED_H

#include <stdint.h>

#include "copy/sides.h"
#include "copy/staging.h"
#include "cuda_api/types.h"

/* Stages what must be, and captures what fills a buffer: then both sides are what the device reaches. */
CUresult fgv_captured_begin(struct fgv_box *box, uint64_t stream, struct fgv_staging *staging);
/* The copy was captured, or was not: captures what drains a buffer, or lets go of it. */
CUresult fgv_captured_end(CUresult result, uint64_t stream, struct fgv_staging *staging);

#endif
