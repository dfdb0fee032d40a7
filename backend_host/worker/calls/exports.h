/*
 * What of the client's memory lies on its vGPU's shelf, in the daemon, for its other programs to open: each allocation
 * under a key that cannot be guessed. It is taken off when the allocation is freed, or with this process.
 */
#ifndef BACKEND_HOST_WORKER_EXPORTS_H
#define BACKEND_HOST_WORKER_EXPORTS_H

#include "calls/state.h"

/* Puts this allocation there, unless it lies there already. CUDA_ERROR_NOT_READY: the daemon was told as much as it
 * wants to hear; ask again. */
CUresult fgw_exports_add(struct fgw_worker *worker, const struct fgw_range *allocation, struct fgw_key *key);
/* Whether it lies there. */
bool fgw_exports_have(const struct fgw_worker *worker, const struct fgw_key *key);
/* The allocation that begins there is gone. */
void fgw_exports_forget(struct fgw_worker *worker, uint64_t address);
/* Tells the daemon what it could not be told before. */
void fgw_exports_settle(struct fgw_worker *worker);
/* Whether the daemon may be told something that it acts upon, as one is from now on: not more often than each ms, for
 * each guest that does nothing else takes it time. */
bool fgw_exports_may_ask(struct fgw_worker *worker);

#endif
