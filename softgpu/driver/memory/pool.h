/* A memory pool keeps what is freed for use again. With the lock. */
#ifndef SOFTGPU_POOL_H
#define SOFTGPU_POOL_H

#include "memory/memory_map.h"

/* A memory pool: what it holds are allocations that name it. */
struct CUmemPoolHandle_st {
    struct sgp_object object;
    struct CUmemPoolHandle_st *next; /* of all pools */
    struct sgp_device *device;
    struct sgp_allocation *kept; /* free memory: the head of a list */
    uint64_t release_threshold_bytes;
    uint64_t max_bytes; /* 0: what the device has */
    uint64_t used_bytes, used_high_bytes;
    uint64_t reserved_bytes, reserved_high_bytes;
    CUmemAllocationHandleType handle_types;
    struct sgp_share *share; /* what its memory is of, where it can be shared; or NULL */
    uint64_t share_bytes;    /* handed out, each once */
    uint64_t inode;          /* of an imported pool: by which it is the same one */
    uint32_t nr_imports;     /* 0: it is this process's own */
    int reuse[3];            /* kept, not used: memory is had again once its free has run */
    bool is_destroyed;
};

void sgp_pool_open(struct sgp_device *device);
/* A pool of a shared file, which becomes its own, or without one; NULL: no memory. */
struct CUmemPoolHandle_st *sgp_pool_new(struct sgp_device *device, struct sgp_share *share);
/* An imported pool of this file; NULL: none. */
struct CUmemPoolHandle_st *sgp_pool_imported(uint64_t inode);
/* A piece of an imported pool's file becomes memory of this process. */
CUresult sgp_pool_import(struct CUctx_st *context, struct CUmemPoolHandle_st *pool, uint64_t offset, uint64_t bytes,
                         CUdeviceptr *address);
/* Gives free memory back until no more than so much is reserved. */
void sgp_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep_bytes);

#endif
