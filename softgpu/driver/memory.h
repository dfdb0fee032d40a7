/* What is where: the allocations of all devices and the host memory known to them. All with the driver's lock held. */
#ifndef SOFTGPU_MEMORY_H
#define SOFTGPU_MEMORY_H

#include "driver.h"

enum sgp_memory_kind {
    SGP_MEMORY_DEVICE,     /* cuMemAlloc */
    SGP_MEMORY_MODULE,     /* globals of a module: not the program's to free */
    SGP_MEMORY_HEAP,       /* malloc in a kernel */
    SGP_MEMORY_ARRAY,      /* texels of an array */
    SGP_MEMORY_HOST,       /* cuMemHostAlloc: ours to unmap */
    SGP_MEMORY_REGISTERED, /* cuMemHostRegister: the program's own */
};

struct sgp_allocation {
    uintptr_t start;
    uint64_t bytes;        /* as the program asked */
    uint64_t mapped_bytes; /* whole pages */
    enum sgp_memory_kind kind;
    unsigned int flags;
    struct CUctx_st *context;
    uint64_t id;
};

bool sgp_memory_reserve(struct sgp_device *device);
CUresult sgp_memory_new(struct CUctx_st *context, uint64_t bytes, enum sgp_memory_kind kind, void **address);
CUresult sgp_memory_add_host(struct CUctx_st *context, void *start, uint64_t bytes, enum sgp_memory_kind kind,
                             unsigned int flags);
void sgp_memory_delete(struct sgp_allocation *allocation);
void sgp_memory_delete_context(struct CUctx_st *context); /* everything that belongs to it */

/* The allocation that holds this address; NULL: none. Valid until the next allocation or release. */
struct sgp_allocation *sgp_memory_find(uintptr_t address);
/* Is this an address of some device's, allocated or not? */
bool sgp_memory_is_device_address(uintptr_t address);
/* Whether a copy may touch these bytes: `is_device` says that the caller named them as device memory. */
bool sgp_memory_range_ok(uintptr_t address, uint64_t bytes, bool is_device);

#endif
