/*
 * Memory of the span in other programs of this machine. The host knows it by a key; a part of it is what a program
 * passes on, and what another one opens.
 *
 * The host answers CUDA_ERROR_NOT_READY while it looks for something, and is asked again; the worker waits for nobody.
 */
#ifndef FRONTEND_GUEST_SHARING_H
#define FRONTEND_GUEST_SHARING_H

#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_context;
struct fgv_range;

struct fgv_shared_part {
    uint64_t key[2];
    uint64_t offset, bytes; /* of all that is known by the key */
};

/* This program's own memory of cuMemAlloc, or of a pool that is shareable. Not in a capture. */
CUresult fgv_sharing_export(const struct fgv_range *range, struct fgv_shared_part *part);

/* Such memory in the current context, under a number of its own: what `part` says may be forged. `pool`: the handle of
 * the pool that it was imported from; 0: it is memory of cuMemAlloc, and not this program's own. It is open as often as
 * it was opened. */
CUresult fgv_sharing_open(const struct fgv_shared_part *part, uint64_t pool, uint64_t *address);
/* Closes it once, when the work of its context is done. Not in a capture. */
CUresult fgv_sharing_close(const struct fgv_range *range);
/* What is open from a pool, and what of the device's memory that keeps. */
void fgv_sharing_count(uint64_t pool, uint64_t *used_bytes, uint64_t *reserved_bytes);

/* The worker closed what was opened in it. */
void fgv_sharing_forget_context(const struct fgv_context *context);

#endif
