/* Reserved addresses and physical memory of the client. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

struct fgw_worker;

/* The client has ended: its quota is given back, the tables are freed. What the driver still has goes with the process.
 */
void fgw_virtual_memory_drop(struct fgw_worker *worker);

#endif
