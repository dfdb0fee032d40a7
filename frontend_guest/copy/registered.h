/* Copies from and to memory of the program's own that it registered: see registered.c. */
#ifndef FRONTEND_GUEST_COPY_REGISTERED_H
#define FRONTEND_GUEST_COPY_REGISTERED_H

#include <stdbool.h>

#include "copy/sides.h"
#include "cuda_api/types.h"

/* A side of which the device has so many bytes already becomes the heap's. */
void fgv_registered_reach(struct fgv_side *side, uint64_t bytes);
/* The same for a side of a box. */
void fgv_registered_reach_box(struct fgv_box_side *side, const struct fgv_box *box);
/* Puts a copy with registered memory on one side into a stream in which a host function stands before it. False: it is
 * made as others are, as there is none, or no room for a buffer and what stands before it has ended. */
bool fgv_registered_copy_behind(struct fgv_box *box, CUstream stream, uint64_t wire, CUresult *result);

#endif
