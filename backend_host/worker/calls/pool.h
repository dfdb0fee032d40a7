/* Memory pools of the client, and what they hold against its quota. */
#ifndef BACKEND_HOST_WORKER_POOL_H
#define BACKEND_HOST_WORKER_POOL_H

#include "calls/state.h"

/* Memory of the pool is no longer the client's. */
void fgv_pool_freed(struct fgv_worker *worker, struct fgv_memory_pool *pool, uint64_t bytes);
/* Makes all pools give back what they keep, as far as the device is done with it. */
void fgv_pools_trim(struct fgv_worker *worker);
/* The client has ended. */
void fgv_pools_drop(struct fgv_worker *worker);

#endif
