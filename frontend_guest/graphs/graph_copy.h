/* The parameters of a copy in a graph: what the host may know of them, and what the program gets to read of them. */
#ifndef FRONTEND_GUEST_GRAPH_COPY_H
#define FRONTEND_GUEST_GRAPH_COPY_H

#include "copy/staging.h"
#include "cuda_api/types.h"

/*
 * Brings both sides into the form that the host takes, and puts buffers in place of ordinary memory of the program, for
 * the call that goes on with them (copy/staging.h). `was`: parameters in this form that nothing needs any more once it
 * has been taken, or NULL.
 */
CUresult fgv_graph_copy_prepare(CUDA_MEMCPY3D *copy, const CUDA_MEMCPY3D *was, struct fgv_staging *staging);
/* Puts back what the program had said of the sides that are staged. */
void fgv_graph_copy_restore(CUDA_MEMCPY3D *copy, const struct fgv_staging *staging);

#endif
