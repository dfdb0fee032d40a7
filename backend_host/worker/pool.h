/* Memory pools of the client, and what they hold against its quota. */
#ifndef BACKEND_HOST_WORKER_POOL_H
#define BACKEND_HOST_WORKER_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_worker;

struct fgv_memory_pool {
    struct fgv_memory_pool *next;
    CUmemoryPool native;
    uint64_t live_bytes;    /* that the client has allocated and not freed */
    uint64_t charged_bytes; /* to the quota */
    uint32_t nr_live;
    bool is_destroyed; /* by the client; goes with its last allocation */
};

struct fgv_memory_pools {
    struct fgv_memory_pool *first;
    struct fgv_memory_pool *by_default; /* the device's, once it was asked for */
    uint32_t nr;
};

/* Memory of the pool is no longer the client's. */
void fgv_pool_freed(struct fgv_worker *worker, struct fgv_memory_pool *pool, uint64_t bytes);
/* Makes all pools give back what they keep, as far as the device is done with it. */
void fgv_pools_trim(struct fgv_worker *worker);
/* The client has ended. */
void fgv_pools_drop(struct fgv_worker *worker);

#endif
