/*
 * What of the client's memory lies on its vGPU's shelf, in the daemon, for its other programs to open: an allocation,
 * or physical memory, each under a key that cannot be guessed. It is taken off when it is freed, or with this process.
 */
#ifndef BACKEND_HOST_WORKER_EXPORTS_H
#define BACKEND_HOST_WORKER_EXPORTS_H

#include "calls/state.h"

/* Its key, if it lies there. `name`: where the allocation begins, or the number of physical memory. */
bool fgw_exports_find(const struct fgw_worker *worker, uint64_t name, struct fgw_key *key);
bool fgw_exports_have(const struct fgw_worker *worker, const struct fgw_key *key);
/* Before the descriptors are made. CUDA_ERROR_NOT_READY: the daemon was told as much as it wants to hear; ask again. */
CUresult fgw_exports_begin(struct fgw_worker *worker);
/* Puts it there: these descriptors, which stay the caller's, are so many bytes. For after fgw_exports_begin. */
CUresult fgw_exports_put(struct fgw_worker *worker, uint64_t name, uint64_t bytes, const int *files, uint32_t nr_files,
                         struct fgw_key *key);
/* What has that name is to go. */
void fgw_exports_forget(struct fgw_worker *worker, uint64_t name);
/* Tells the daemon what it could not be told before. */
void fgw_exports_settle(struct fgw_worker *worker);
/* Whether the daemon may be told something that it acts upon, as one is from now on: not more often than each ms, for
 * each guest that does nothing else takes it time. */
bool fgw_exports_may_ask(struct fgw_worker *worker);

#endif
