/* Reserved addresses and physical memory of the client. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

#include "client/kind.h"

/* Hangs on the client's number of it. */
struct fgw_physical {
    CUmemGenericAllocationHandle native;
    uint64_t bytes;
    uint32_t compression, rdma; /* as the client asked for */
    uint32_t is_shareable;      /* likewise: a descriptor may be made of it */
    uint32_t nr_retained;       /* by the client: the number is good for mapping while this is not 0 */
    uint32_t nr_mapped;
    bool is_imported;
};

/* NULL: there is none. */
struct fgw_physical *fgw_physical_find(struct fgw_worker *worker, uint64_t number);
/* Another program's memory, under a number that is free. It was taken from the quota. */
CUresult fgw_physical_enter(struct fgw_worker *worker, uint64_t number, CUmemGenericAllocationHandle native,
                            uint64_t bytes);
/* Gives back what was paid for physical memory. What the driver still has goes with the process. */
void fgw_allocation_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Its bytes, and where it is mapped, are not the handle: who moves memory moves those. */
const char *fgw_allocation_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_allocation_restore(struct fgw_worker *worker, const struct fgw_saved_head *head,
                                   struct fgw_saved *saved);
/* The client has ended: the tables are freed. */
void fgw_virtual_memory_drop(struct fgw_worker *worker);

#endif
