#include "memory/kept.h"

#include "context/pool_cache.h"
#include "memory/slabs.h"

bool fgv_kept_give_back(void)
{
    const bool had_slabs = fgv_slab_trim();
    const bool had_blocks = fgv_pool_cache_flush(0) && fgv_slab_wait() == CUDA_SUCCESS;
    return had_slabs || had_blocks;
}
