/*
 * Memory of this process for what is brought out of the device: filled with pages and registered by a thread of its
 * own, ahead of need, since that takes nine times as long as to copy into it (docs/lab/memory.md). One piece is made at
 * a time. The thread makes what takes fingerprints, too, as a driver may have to compile it.
 */
#ifndef BACKEND_HOST_WORKER_SWAP_MEMORY_H
#define BACKEND_HOST_WORKER_SWAP_MEMORY_H

#include "calls/fingerprint.h"
#include "client/state.h"

struct fgw_swap_memory;

/* Makes the thread, in which `context` is current for the driver; NULL: there is no memory. */
struct fgw_swap_memory *fgw_swap_memory_new(struct fgw_worker *worker, CUcontext context);
/* Gives the piece that was asked for, of so many bytes; NULL: it is not there yet. One that is not, and of which none
 * is under way, is asked for. */
void *fgw_swap_memory_take(struct fgw_swap_memory *memory, uint64_t bytes);
/* Tells whether the host had no memory for the last one that was asked for. */
bool fgw_swap_memory_has_failed(struct fgw_swap_memory *memory);
/* Gives what takes fingerprints in its context; NULL: it is not there yet, or the driver has not what it needs. */
const struct fgw_printer *fgw_swap_memory_printer(struct fgw_swap_memory *memory);
/* Of a piece that was taken. */
void fgw_swap_memory_free(struct fgw_worker *worker, void *start, uint64_t bytes);
/* Tells whether it is of this context. NULL is of none. */
bool fgw_swap_memory_is_of(const struct fgw_swap_memory *memory, CUcontext context);
/* Waits for the thread, a piece long at most; its context is there. NULL is fine. */
void fgw_swap_memory_end(struct fgw_swap_memory *memory);

#endif
