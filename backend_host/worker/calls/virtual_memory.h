/* Addresses that the client reserved, and what is mapped there. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

#include "client/state.h"

/* The client has ended: the tables are freed. */
void fgw_virtual_memory_drop(struct fgw_worker *worker);

#endif
