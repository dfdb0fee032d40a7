/* Physical memory of the client's: see physical.c. */
#ifndef BACKEND_HOST_WORKER_PHYSICAL_H
#define BACKEND_HOST_WORKER_PHYSICAL_H

#include "client/kind.h"

/* Hangs on the client's number of it. */
struct fgw_physical {
    CUmemGenericAllocationHandle native; /* 0: it is an extent, or promised */
    uint64_t extent;                     /* where it is one, which then has the handle; else 0 */
    uint64_t bytes;
    uint32_t compression, rdma; /* as the client asked for */
    uint32_t is_shareable;      /* likewise: a descriptor may be made of it */
    uint32_t nr_retained;       /* by the client: the number is good for mapping while this is not 0 */
    uint32_t nr_mapped;
    bool is_imported;
    uint64_t share; /* then: its name, for all that have it (page/shares.h) */
};

/* NULL: there is none. */
struct fgw_physical *fgw_physical_find(struct fgw_worker *worker, uint64_t number);
/* Whether there is no memory yet. */
bool fgw_physical_is_promised(const struct fgw_physical *physical);
/* Makes promised memory an extent where the client has it mapped: whole, and with all access. */
CUresult fgw_physical_place(struct fgw_worker *worker, struct fgw_physical *physical, uint64_t address);
/* Makes it memory that the driver's handle stands for, and no extent. CUDA_ERROR_NOT_READY: it is one that is not on
 * the device, which an honest guest's never is by then (needs_memory of loop/serve.c). */
CUresult fgw_physical_hold(struct fgw_worker *worker, struct fgw_physical *physical);
CUresult fgw_physical_drop_if_unused(struct fgw_worker *worker, uint64_t number, const struct fgw_physical *physical);
/* Another program's memory, under a number that is free. It was taken from the quota. */
CUresult fgw_physical_enter(struct fgw_worker *worker, uint64_t number, CUmemGenericAllocationHandle native,
                            uint64_t bytes, uint64_t share);
/* Gives back what was paid for physical memory. What the driver still has goes with the process. */
void fgw_allocation_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Its bytes, and where it is mapped, are not the handle: who moves memory moves those. */
const char *fgw_allocation_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_allocation_restore(struct fgw_worker *worker, const struct fgw_saved_head *head,
                                   struct fgw_saved *saved);

#endif
