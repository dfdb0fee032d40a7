/* Reserved addresses and physical memory of the client. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

#include "client/handles.h"

/* Gives back what was paid for physical memory. What the driver still has goes with the process. */
void fgw_allocation_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* The client has ended: the tables are freed. */
void fgw_virtual_memory_drop(struct fgw_worker *worker);

#endif
