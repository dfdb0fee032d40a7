/* Which pool memory is allocated from. */
#ifndef FRONTEND_GUEST_POOL_H
#define FRONTEND_GUEST_POOL_H

#include "memory/pool_table.h"

/* The pool that allocations of a device come from when none is named; its handle. */
CUresult fgv_memory_pool_current(uint32_t ordinal, CUmemoryPool *pool);

#endif
