/* Memory pools as the guest knows them. */
#ifndef FRONTEND_GUEST_POOL_TABLE_H
#define FRONTEND_GUEST_POOL_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* Of a pool that another program made: share_pool.c. */
struct fgv_pool_import {
    struct fgv_memory_pool *next; /* of all that were imported */
    uint64_t words[2];            /* by which it is the same one */
    uint64_t handle;
    uint64_t used_high_bytes, reserved_high_bytes;
    uint32_t nr_times; /* that it was, less those that it was destroyed */
};

struct fgv_memory_pool {
    uint32_t ordinal;
    bool is_default;   /* the device's own: 0 on the wire */
    bool is_shareable; /* a descriptor may be made of it */
    bool is_imported;  /* the worker knows nothing of it */
    atomic_bool is_exported;
    _Atomic uint64_t threshold_bytes;
    struct fgv_pool_import import;
};

/* The pool behind a handle, NULL when it is none. */
struct fgv_memory_pool *fgv_memory_pool_find(CUmemoryPool pool);
/* Initialised, and a pool. */
CUresult fgv_memory_pool_check(CUmemoryPool pool, struct fgv_memory_pool **found);
/* One that is like this under a new handle; and no more. */
CUresult fgv_memory_pool_new(const struct fgv_memory_pool *like, uint64_t *handle);
void fgv_memory_pool_drop(struct fgv_memory_pool *pool, uint64_t handle);

#endif
