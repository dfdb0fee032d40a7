/* Reserved addresses and physical memory of the client. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

#include "client/kind.h"

/* Gives back what was paid for physical memory. What the driver still has goes with the process. */
void fgw_allocation_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Its bytes, and where it is mapped, are not the handle: who moves memory moves those. */
const char *fgw_allocation_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_allocation_restore(struct fgw_worker *worker, const struct fgw_saved_head *head,
                                   struct fgw_saved *saved);
/* The client has ended: the tables are freed. */
void fgw_virtual_memory_drop(struct fgw_worker *worker);

#endif
