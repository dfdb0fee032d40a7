/* Memory pools as the guest knows them. */
#ifndef FRONTEND_GUEST_POOL_H
#define FRONTEND_GUEST_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_memory_pool {
    uint32_t ordinal;
    bool is_default; /* the device's own: 0 on the wire */
    _Atomic uint64_t threshold_bytes;
};

/* The pool behind a handle, NULL when it is none. */
struct fgv_memory_pool *fgv_memory_pool_find(CUmemoryPool pool);
/* The pool that allocations of a device come from when none is named; its handle. */
CUresult fgv_memory_pool_current(uint32_t ordinal, CUmemoryPool *pool);

#endif
