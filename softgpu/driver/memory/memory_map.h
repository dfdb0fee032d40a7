/* What is where: the allocations of all devices and the host memory known to them. All with the driver's lock held. */
#ifndef SOFTGPU_MEMORY_MAP_H
#define SOFTGPU_MEMORY_MAP_H

#include "base/ranges.h"
#include "device/current.h"
#include "memory/share.h"

enum sgp_memory_kind {
    SGP_MEMORY_DEVICE,     /* cuMemAlloc */
    SGP_MEMORY_MODULE,     /* globals of a module: not the program's to free */
    SGP_MEMORY_HEAP,       /* malloc in a kernel */
    SGP_MEMORY_ARRAY,      /* texels of an array */
    SGP_MEMORY_HOST,       /* cuMemHostAlloc: ours to unmap */
    SGP_MEMORY_REGISTERED, /* cuMemHostRegister: the program's own */
    SGP_MEMORY_MANAGED,    /* cuMemAllocManaged */
    SGP_MEMORY_POOLED,     /* of a memory pool */
    SGP_MEMORY_MAPPED,     /* cuMemMap: part of a physical allocation */
    SGP_MEMORY_GRAPH,      /* that a node of a graph allocates */
    SGP_MEMORY_IMPORTED,   /* cuIpcOpenMemHandle: another process's */
};

struct sgp_allocation;

/* What memory is to whoever made it, beside being memory. NULL: nothing. */
struct sgp_memory_owner {
    bool (*is_live)(const struct sgp_allocation *allocation); /* whether the program may free it */
    void (*free)(struct sgp_allocation *allocation);          /* by cuMemFree, after everything that may use it */
    CUresult (*free_in)(struct sgp_allocation *allocation, struct CUstream_st *stream);
    void (*deleted)(struct sgp_allocation *allocation); /* it is gone */
};

struct sgp_allocation {
    union {
        struct sgp_range range;
        struct {
            uintptr_t start;
            uint64_t mapped_bytes; /* whole pages */
        };
    };
    uint64_t bytes; /* as the program asked */
    enum sgp_memory_kind kind;
    const struct sgp_memory_owner *owner; /* or NULL */
    struct sgp_share *share;              /* the file that it is part of, or NULL */
    uint64_t share_offset;
    bool is_imported; /* with the file: it counts for who made it */
    unsigned int flags;
    struct CUctx_st *context;
    uint64_t id;
    struct CUmemPoolHandle_st *pool; /* of POOLED */
    struct CUstream_st *freed_in;    /* POOLED, after cuMemFreeAsync and before that has run */
    bool is_kept;                    /* POOLED: free, and the pool's for use again */
    struct sgp_allocation *next_kept, **kept_link;
    struct sgp_physical *physical;             /* of MAPPED */
    uintptr_t source;                          /* of MAPPED: where the process of kernels has it, too; 0: nowhere */
    struct sgp_graph_memory *graph_memory;     /* of GRAPH */
    const struct sgp_module *code;             /* of MODULE, or NULL: which variables are where */
    CUmemAccess_flags access[SGP_MAX_DEVICES]; /* of MAPPED, by ordinal: what each device may do */
    bool is_sync_memops;
};

/* Gives memory back that nobody uses, if there is any: the pools'. */
extern bool (*sgp_memory_trim)(struct sgp_device *device);
/* Counts so many bytes more against the device's memory; false: there are not as many. sgp_state_give_back() ends it.
 */
bool sgp_memory_take(struct sgp_device *device, uint64_t bytes);

bool sgp_memory_reserve(struct sgp_device *device);
CUresult sgp_memory_new(struct CUctx_st *context, uint64_t bytes, enum sgp_memory_kind kind, void **address);
/* A part of a shared file. */
CUresult sgp_memory_new_in(struct CUctx_st *context, uint64_t bytes, enum sgp_memory_kind kind, struct sgp_share *share,
                           uint64_t offset, bool is_imported, void **address);
/* Its contents go into this file, and the file takes its place; nothing may use it meanwhile. */
bool sgp_memory_move_into(struct sgp_allocation *allocation, struct sgp_share *share);
CUresult sgp_memory_add_host(struct CUctx_st *context, void *start, uint64_t bytes, enum sgp_memory_kind kind,
                             unsigned int flags);
/* Enters memory that is mapped already. NULL: no memory. */
struct sgp_allocation *sgp_memory_enter(const struct sgp_allocation *allocation);
void sgp_memory_delete(struct sgp_allocation *allocation);
void sgp_memory_delete_context(struct CUctx_st *context); /* everything that belongs to it */

/* The allocation that holds this address; NULL: none. */
struct sgp_allocation *sgp_memory_find(uintptr_t address);
/* The first allocation that ends after the address, in the order of addresses; NULL: none. */
struct sgp_allocation *sgp_memory_after(uintptr_t address);
/* Of MAPPED: what any device may do, which is what all can do here. */
CUmemAccess_flags sgp_memory_access(const struct sgp_allocation *mapping);
/* How many bytes from there on are managed memory, or one variable that is; the address is in the allocation. */
uint64_t sgp_managed_bytes(const struct sgp_allocation *allocation, CUdeviceptr address);
/* Is this an address of the memory of some device? */
bool sgp_memory_is_in_device(uintptr_t address);
/* Is this an address of some device's, allocated or not? */
bool sgp_memory_is_device_address(uintptr_t address);
/* Whether the driver itself may read these bytes, or read and write them: `is_device` says that the caller named them
 * as device memory. */
bool sgp_memory_range_ok(uintptr_t address, uint64_t bytes, bool is_device, CUmemAccess_flags access);

/* Addresses without memory that the program reserved. */
struct sgp_reservation {
    union {
        struct sgp_range range;
        struct {
            uintptr_t start;
            uint64_t bytes;
        };
    };
};

extern struct sgp_ranges sgp_reservations;
/* The one that holds all of these bytes; NULL: none does. */
const struct sgp_reservation *sgp_reservation_of(uintptr_t address, uint64_t bytes);

#endif
