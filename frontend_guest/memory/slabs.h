/*
 * Small allocations of device memory, cut out of slabs here in the guest. A driver does the same in its own process:
 * there is no way to the host for each, as there is none to the device.
 *
 * A slab is 2 MiB from the host, in one context. It goes back when nothing in it is used any more; one that is empty is
 * kept for the next allocation, until the program asks how much memory is free or the device has none.
 *
 * Memory that is freed may be given again at once, so freeing waits for all work, as CUDA's does. What has been waited
 * for before is not waited for again: the ring tells whether anything came since.
 */
#ifndef FRONTEND_GUEST_SLABS_H
#define FRONTEND_GUEST_SLABS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_context;

#define FGV_SLAB_BYTES      (UINT64_C(2) << 20)
#define FGV_SLAB_MOST_BYTES (FGV_SLAB_BYTES / 2) /* of an allocation; larger ones are the host's */

/* Memory in the current context: `address`, and the `place` by which it is freed. An error: the host has no slab. */
CUresult fgv_slab_allocate(size_t bytes, uint64_t *address, uint64_t *place);
/* Waits for all work, and gives its errors. */
CUresult fgv_slab_wait(void);
void fgv_slab_free(uint64_t place);
/* Gives empty slabs of the current context back to the host; false: there was none. */
bool fgv_slab_trim(void);
/* The worker freed all of it. */
void fgv_slab_forget_context(const struct fgv_context *context);

#endif
