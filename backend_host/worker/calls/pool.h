/* Memory pools of the client, and what they hold against its quota. */
#ifndef BACKEND_HOST_WORKER_POOL_H
#define BACKEND_HOST_WORKER_POOL_H

#include "calls/state.h"
#include "client/kind.h"

/* The client destroyed it; it goes with its last allocation. */
void fgw_pool_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Of pool_saved.c. */
const char *fgw_pool_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_pool_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);
/* Memory of the pool is no longer the client's. */
void fgw_pool_freed(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes);
/* Makes all pools give back what they keep, as far as the device is done with it. */
void fgw_pools_trim(struct fgw_worker *worker);
/* The client has ended. */
void fgw_pools_drop(struct fgw_worker *worker);

#endif
