/* Pools that other programs of this machine made: see share_pool.c. */
#ifndef FRONTEND_GUEST_SHARE_POOL_H
#define FRONTEND_GUEST_SHARE_POOL_H

#include "memory/pool_table.h"

/* It is destroyed once, and ends when it was as often as it was imported. */
void fgv_memory_pool_unimport(struct fgv_memory_pool *pool);
/* What it says of itself. */
CUresult fgv_memory_pool_ask_imported(struct fgv_memory_pool *pool, CUmemPool_attribute attr, uint64_t *value);

#endif
