/* Device memory under the vGPU's quota, and registered host memory: see memory.c. */
#ifndef BACKEND_HOST_MEMORY_H
#define BACKEND_HOST_MEMORY_H

#include "calls/state.h"

/* Puts the quota in front of the driver's allocation calls. */
void fgw_memory_wrap(struct fgv_driver *driver);
/* Registers the arena and what the guest registered with the driver, in the current context, but for what is
 * registered in another one; and takes back what is in this context before that goes, NULL: in any. A driver waits for
 * the work of that context. */
void fgw_memory_pin(struct fgw_worker *worker);
void fgw_memory_unpin(struct fgw_worker *worker, const struct fgw_context *context);
/* The context is gone, and what the driver itself placed in it. NULL: everything is forgotten, and the quota given
 * back. */
void fgw_memory_drop_context(struct fgw_worker *worker, const struct fgw_context *context);
/* Takes from the quota, if need be after pools gave back what they keep. */
bool fgw_memory_take(struct fgw_worker *worker, uint64_t bytes);
/* Likewise, and of the room on the device, for what stays there. */
bool fgw_memory_place(struct fgw_worker *worker, uint64_t bytes);
void fgw_memory_unplace(struct fgw_worker *worker, uint64_t bytes);
/* Tells how much of the device's memory nobody has, as the driver says in the current context. */
uint64_t fgw_memory_unused(void);
/* Pools and graphs give back what they keep. */
void fgw_memory_trim(struct fgw_worker *worker);
/* The allocation is gone, or about to go: its quota is given back. `stream`: a pool's, of which the work that is there
 * now may use it; NULL: nothing does. */
void fgw_memory_forget(struct fgw_worker *worker, struct fgw_range *range, struct fgw_stream *stream);
/* True when the range lies in the heap at the client's address and all its pages belong to the client. */
bool fgw_memory_is_own_heap(const struct fgw_worker *worker, uint64_t address, uint64_t bytes);
/* True when some of the range is the arena's. */
bool fgw_memory_is_in_arena(const struct fgw_worker *worker, uint64_t address, uint64_t bytes);
/* Has the driver pin these pages, for all contexts. CUDA_ERROR_NOT_SUPPORTED: it never does. */
CUresult fgw_memory_register(struct fgw_worker *worker, uint64_t address, uint64_t bytes);

#endif
