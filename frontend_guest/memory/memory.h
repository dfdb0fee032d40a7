/* Memory that is allocated: device memory on the host, pinned and managed memory in the region's heap. */
#ifndef FRONTEND_GUEST_MEMORY_H
#define FRONTEND_GUEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_context;
struct fgv_range;

/* What becomes of managed memory, which is looked after above. face/upward.c fills it. */
struct fgv_memory_ops {
    CUresult (*managed_free)(const struct fgv_range *range);
    /* What was said about it. */
    void (*managed_forget)(const struct fgv_range *range);
};
extern const struct fgv_memory_ops *fgv_memory_ops;

/* Managed memory that lies in the heap, where program and device reach it at any time, and both slowly. */
CUresult fgv_memory_take_managed(uint64_t *address, uint64_t bytes, uint32_t flags);
/* Gives the memory of a context that lies in the heap back, while the worker still has the context. */
void fgv_memory_release_shared(const struct fgv_context *context);
/* Pinned memory for this library's own use, in the current context, until it is given back or the context goes. */
CUresult fgv_memory_take_own(uint64_t bytes, struct fgv_range *range);
void fgv_memory_give_own(const struct fgv_range *range);
/* Whether a box of `height` rows of `width` elements, `pitch` bytes apart, lies in what the guest knows that the
 * program may use on the device, with its elements where they may lie. One of nothing does. */
bool fgv_memory_has(CUdeviceptr address, uint32_t element_bytes, size_t width, size_t height, size_t pitch);
/* Whether one begins in a part of a slab and ends behind it, or where no part is any more: the driver, which knows the
 * slab, would let it. */
bool fgv_memory_overruns(CUdeviceptr address, uint32_t element_bytes, size_t width, size_t height, size_t pitch);
/* Waits for the device where the address is host memory, or managed, as CUDA's copies and sets do. */
CUresult fgv_memory_settle(CUdeviceptr address);

#endif
