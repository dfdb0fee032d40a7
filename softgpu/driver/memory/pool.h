/* A memory pool keeps what is freed for use again. With the lock. */
#ifndef SOFTGPU_POOL_H
#define SOFTGPU_POOL_H

#include "base/object.h"
#include "device/device.h"

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
    int reuse[3]; /* kept, not used: memory is had again once its free has run */
    bool is_destroyed;
};

void sgp_pool_open(struct sgp_device *device);

#endif
