/* Reserved addresses and physical memory of the client. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

struct fgv_worker;

/* The client has ended: its quota is given back, the tables are freed. What the driver still has goes with the process.
 */
void fgv_virtual_memory_drop(struct fgv_worker *worker);

#endif
