/* See pool_table.h. */
#include "memory/pool_table.h"

#include <stdlib.h>

#include "base/handles.h"
#include "region/client.h"

struct fgv_memory_pool *fgv_memory_pool_find(CUmemoryPool pool)
{
    return fgv_handle_object(FGV_HANDLE_MEMORY_POOL, (uint64_t)(uintptr_t)pool);
}

CUresult fgv_memory_pool_new(const struct fgv_memory_pool *like, uint64_t *handle)
{
    struct fgv_memory_pool *pool = malloc(sizeof(*pool));
    if (!pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = *like;
    CUresult result = fgv_handle_new(FGV_HANDLE_MEMORY_POOL, handle);
    if (result != CUDA_SUCCESS) {
        free(pool);
        return result;
    }
    fgv_handle_set_object(FGV_HANDLE_MEMORY_POOL, *handle, pool);
    return CUDA_SUCCESS;
}

void fgv_memory_pool_drop(struct fgv_memory_pool *pool, uint64_t handle)
{
    fgv_handle_drop(FGV_HANDLE_MEMORY_POOL, handle);
    free(pool);
}

CUresult fgv_memory_pool_check(CUmemoryPool pool, struct fgv_memory_pool **found)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *found = fgv_memory_pool_find(pool);
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
