/* Addresses that the client reserved, and what is mapped there. */
#ifndef BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H
#define BACKEND_HOST_WORKER_VIRTUAL_MEMORY_H

#include "client/state.h"

/* The client has ended: the tables are freed. */
void fgw_virtual_memory_drop(struct fgw_worker *worker);
/* Maps physical memory, `owner` being its number, at addresses that were reserved and have nothing. The client may use
 * it there when cuMemSetAccess has said so. */
CUresult fgw_mapping_enter(struct fgw_worker *worker, const struct fgw_range *range, uint64_t offset);
/* Takes what is mapped in these bytes out, which is whole mappings side by side. */
CUresult fgw_mapping_leave(struct fgw_worker *worker, uint64_t address, uint64_t bytes);

#endif
