/*
 * Memory pools of the client: made, ended, asked about, and what all of them do together. What one holds is
 * pool_holding.c, what is allocated from it pool_memory.c.
 *
 * What is more than a pool's threshold goes back when the client's work has ended: within 50 ms, or when somebody asks
 * what is free or held. CUDA does that when the client waits for the end.
 */
#include "calls/pool.h"

#include <stdlib.h>

#include "calls/pool_holding.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "page/account.h"
#include "page/room.h"

#define MAX_POOLS    32u              /* each allocation and free looks at all */
#define NO_MAX_BYTES (UINT64_MAX / 2) /* of a pool: more than there is */

void fgw_pool_end_if_unused(struct fgw_worker *worker, struct fgw_memory_pool *pool)
{
    struct fgw_memory_pool **link = &worker->calls->pools.first;
    if (!pool->is_destroyed || pool->nr_live != 0) {
        return;
    }
    fgw_pool_give_back(worker, pool, 0);
    if (pool->blocks.segments) {
        return;
    }
    while (*link != pool) {
        link = &(*link)->next;
    }
    *link = pool->next;
    worker->calls->pools.nr--;
    free(pool);
}

void fgw_pools_trim(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first; pool; pool = pool->next) {
        fgw_pool_give_back(worker, pool, 0);
    }
}

void fgw_pools_rest(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first, *next; pool; pool = next) {
        next = pool->next;
        if (pool->blocks.reserved_bytes > pool->threshold_bytes && fgw_pool_is_idle(worker)) {
            fgw_pool_give_back(worker, pool, pool->threshold_bytes);
        }
        fgw_pool_end_if_unused(worker, pool);
    }
}

void fgw_pools_settle(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first; pool; pool = pool->next) {
        fgw_blocks_settle(&pool->blocks, &fgw_pool_hooks);
    }
}

bool fgw_pool_is_piece_of(const struct fgw_range *range, const struct fgw_context *context)
{
    const struct fgw_block *block = (const struct fgw_block *)(uintptr_t)range->owner;
    return block->segment->home == context;
}

void fgw_pools_lose(struct fgw_worker *worker, const struct fgw_context *context)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first; pool; pool = pool->next) {
        for (struct fgw_segment *segment = pool->blocks.segments, *next; segment; segment = next) {
            next = segment->next;
            if (segment->home == context) {
                fgw_blocks_lose(&pool->blocks, segment, &fgw_pool_hooks);
            }
        }
        fgw_pool_count(worker, pool);
    }
}

bool fgw_pools_have(const struct fgw_worker *worker, uint64_t address)
{
    for (const struct fgw_memory_pool *pool = worker->calls->pools.first; pool; pool = pool->next) {
        for (const struct fgw_segment *segment = pool->blocks.segments; segment; segment = segment->next) {
            if (address - segment->address < segment->bytes) {
                return true;
            }
        }
    }
    return false;
}

struct fgw_range fgw_pool_piece_of(const struct fgw_range *range)
{
    const struct fgw_block *block = (const struct fgw_block *)(uintptr_t)range->owner;
    return (struct fgw_range){.address = block->segment->address, .bytes = block->segment->bytes, .pool = range->pool};
}

/* ---- pools ---- */

static struct fgw_memory_pool *new_pool(struct fgw_worker *worker)
{
    struct fgw_memory_pool *pool = worker->calls->pools.nr < MAX_POOLS ? calloc(1, sizeof(*pool)) : NULL;
    if (pool) {
        for (uint32_t i = 0; i < FGW_POOL_NR_REUSES; i++) {
            pool->reuse[i] = 1;
        }
        pool->max_bytes = NO_MAX_BYTES;
        pool->next = worker->calls->pools.first;
        worker->calls->pools.first = pool;
        worker->calls->pools.nr++;
    }
    return pool;
}

void fgw_pool_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_memory_pool *pool = handle->native;
    pool->is_destroyed = true;
    fgw_pool_end_if_unused(worker, pool);
}

void fgw_pools_drop(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first, *next; pool; pool = next) {
        next = pool->next;
        fgw_room_unplace(&worker->grantee, pool->placed_bytes);
        fgw_blocks_drop(&pool->blocks, &fgw_pool_hooks);
        free(pool);
    }
    fgw_quota_give(&worker->grantee, worker->calls->pools.counted_bytes);
    worker->calls->pools = (struct fgw_memory_pools){0};
}

CUresult fgw_pool_find(struct fgw_worker *worker, uint64_t number, struct fgw_memory_pool **pool)
{
    if (number != 0) {
        void *found;
        CUresult result = fgw_worker_find(worker, FGV_HANDLE_MEMORY_POOL, number, &found);
        *pool = found;
        return result == CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->driver.cuDeviceGetDefaultMemPool) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!worker->calls->pools.by_default) {
        worker->calls->pools.by_default = new_pool(worker);
    }
    *pool = worker->calls->pools.by_default;
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fgw_serve_cuMemPoolCreate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolCreate *fixed = request->fixed;
    (void)reply;
    if (!worker->driver.cuDeviceGetDefaultMemPool) {
        return CUDA_ERROR_NOT_SUPPORTED; /* a device without pools */
    }
    CUresult result = fgw_worker_can_bind(worker, FGV_HANDLE_MEMORY_POOL, fixed->handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgw_memory_pool *pool = new_pool(worker);
    if (!pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (fixed->max_bytes != 0 && fixed->max_bytes < pool->max_bytes) {
        pool->max_bytes = fixed->max_bytes;
    }
    pool->is_shareable = fixed->is_shareable != 0;
    return fgw_worker_bind(worker, FGV_HANDLE_MEMORY_POOL, fixed->handle, pool);
}

CUresult fgw_serve_cuMemPoolDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolDestroy *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    CUresult result = fixed->pool == 0 ? CUDA_ERROR_INVALID_VALUE : fgw_pool_find(worker, fixed->pool, &pool);
    if (result == CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_MEMORY_POOL, fixed->pool);
    }
    return result;
}

CUresult fgw_serve_cuMemPoolTrimTo(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolTrimTo *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    CUresult result = fgw_pool_find(worker, fixed->pool, &pool);
    if (result == CUDA_SUCCESS) {
        fgw_pool_give_back(worker, pool, fixed->keep_bytes);
    }
    return result;
}

/* ---- attributes ---- */

CUresult fgw_pool_set(struct fgw_memory_pool *pool, uint32_t attribute, uint64_t value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = (uint32_t)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold_bytes = value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        pool->reserved_high_bytes = value == 0 ? pool->blocks.reserved_bytes : pool->reserved_high_bytes;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        pool->used_high_bytes = value == 0 ? pool->live_bytes : pool->used_high_bytes;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fgw_pool_get(const struct fgw_memory_pool *pool, uint32_t attribute, uint64_t *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *value = pool->threshold_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *value = pool->blocks.reserved_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *value = pool->reserved_high_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *value = pool->live_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *value = pool->used_high_bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult fgw_serve_cuMemPoolSetAttribute(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolSetAttribute *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    CUresult result = fgw_pool_find(worker, fixed->pool, &pool);
    return result == CUDA_SUCCESS ? fgw_pool_set(pool, fixed->attribute, fixed->value) : result;
}

CUresult fgw_serve_cuMemPoolGetAttribute(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolGetAttribute *fixed = request->fixed;
    struct fgv_reply_cuMemPoolGetAttribute *answer = reply;
    struct fgw_memory_pool *pool;
    CUresult result = fgw_pool_find(worker, fixed->pool, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgw_pools_rest(worker);
    return fgw_pool_get(pool, fixed->attribute, &answer->value);
}
