/*
 * Stream-ordered memory under the vGPU's quota.
 *
 * A pool keeps memory that was freed, and the device may still be busy with that, so a quota on what is allocated would
 * bound nothing. What counts is the larger of what the client has allocated and what the driver says that the pool
 * holds, less one step of the driver's growth, which is the host's affair as any rounding is. Both are looked at after
 * each allocation and each free: in between a pool only shrinks.
 *
 * Whether an allocation makes a pool grow is known afterwards. Where the pool says that it has room, the driver is
 * asked first; growth past the quota is then undone, and nothing is asked of this pool again before it has shrunk. So a
 * pool is never further past its quota than by one allocation that it had room for.
 *
 * In a stream that is captured an allocation is none of a pool's: graph_memory.h.
 */
#include "calls/pool.h"

#include <stdlib.h>

#include "calls/graph.h"
#include "calls/graph_memory.h"
#include "calls/memory.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "page/account.h"
#include "track/state.h"

#define FGW_MAX_POOLS       32u                  /* each may hold one step unseen */
#define FGW_POOL_STEP_BYTES (UINT64_C(32) << 20) /* by which a driver lets a pool grow */

static uint64_t attribute(struct fgw_worker *worker, const struct fgw_memory_pool *pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;
    if (!worker->driver.cuMemPoolGetAttribute ||
        worker->driver.cuMemPoolGetAttribute(pool->native, which, &value) != CUDA_SUCCESS) {
        return 0;
    }
    return value;
}

static uint64_t less_a_step(uint64_t reserved_bytes)
{
    return reserved_bytes > FGW_POOL_STEP_BYTES ? reserved_bytes - FGW_POOL_STEP_BYTES : 0;
}

/* Counts what the pool holds now; false when it is more than the quota has left: then less is charged. */
static bool count(struct fgw_worker *worker, struct fgw_memory_pool *pool)
{
    uint64_t kept_bytes = less_a_step(attribute(worker, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    uint64_t due_bytes = kept_bytes > pool->live_bytes ? kept_bytes : pool->live_bytes;
    if (due_bytes <= pool->counted_bytes) {
        fgw_quota_give(&worker->grantee, pool->counted_bytes - due_bytes);
    } else if (!fgw_quota_take(&worker->grantee, due_bytes - pool->counted_bytes)) {
        return false;
    }
    pool->counted_bytes = due_bytes;
    return true;
}

static void free_pool(struct fgw_worker *worker, struct fgw_memory_pool *pool)
{
    struct fgw_memory_pool **link = &worker->calls->pools.first;
    while (*link != pool) {
        link = &(*link)->next;
    }
    *link = pool->next;
    worker->calls->pools.nr--;
    fgw_quota_give(&worker->grantee, pool->counted_bytes);
    free(pool);
}

static struct fgw_memory_pool *new_pool(struct fgw_worker *worker, CUmemoryPool native)
{
    struct fgw_memory_pool *pool = worker->calls->pools.nr < FGW_MAX_POOLS ? calloc(1, sizeof(*pool)) : NULL;
    if (pool) {
        pool->native = native;
        pool->next = worker->calls->pools.first;
        worker->calls->pools.first = pool;
        worker->calls->pools.nr++;
    }
    return pool;
}

void fgw_pool_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_memory_pool *pool = handle->native;
    pool->is_destroyed = true; /* and from now on counts for what was counted last */
    if (pool->nr_live == 0) {
        free_pool(worker, pool);
    }
}

void fgw_pool_freed(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    pool->live_bytes -= bytes;
    pool->nr_live--;
    if (pool->is_destroyed && pool->nr_live == 0) {
        free_pool(worker, pool);
    } else if (!pool->is_destroyed) {
        count(worker, pool);
    }
}

void fgw_pools_trim(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first; pool; pool = pool->next) {
        if (!pool->is_destroyed && worker->driver.cuMemPoolTrimTo) {
            worker->driver.cuMemPoolTrimTo(pool->native, 0);
            count(worker, pool);
        }
    }
}

void fgw_pools_drop(struct fgw_worker *worker)
{
    while (worker->calls->pools.first) {
        free_pool(worker, worker->calls->pools.first);
    }
    worker->calls->pools.by_default = NULL;
}

/* 0: the device's own. */
static CUresult find_pool(struct fgw_worker *worker, uint64_t number, struct fgw_memory_pool **pool)
{
    CUmemoryPool native;
    if (number != 0) {
        void *found;
        CUresult result = fgw_worker_find(worker, FGV_HANDLE_MEMORY_POOL, number, &found);
        *pool = found;
        return result == CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->calls->pools.by_default) {
        if (!worker->driver.cuDeviceGetDefaultMemPool) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        CUresult result = worker->driver.cuDeviceGetDefaultMemPool(&native, worker->device);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        worker->calls->pools.by_default = new_pool(worker, native);
    }
    *pool = worker->calls->pools.by_default;
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Makes sure of quota for one allocation before the driver is asked. */
static bool take_ahead(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    if (bytes > UINT64_MAX / 4) {
        return false;
    }
    uint64_t reserved_bytes = attribute(worker, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t kept_bytes = less_a_step(reserved_bytes);
    uint64_t used_bytes = attribute(worker, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    bool has_room =
        kept_bytes <= pool->counted_bytes && reserved_bytes > used_bytes && reserved_bytes - used_bytes >= bytes;
    uint64_t wanted_bytes = pool->live_bytes + bytes;
    if (!has_room && kept_bytes + bytes > wanted_bytes && kept_bytes != 0) {
        wanted_bytes = kept_bytes + bytes;
    }
    if (wanted_bytes > pool->counted_bytes) {
        if (!fgw_quota_take(&worker->grantee, wanted_bytes - pool->counted_bytes)) {
            return false;
        }
        pool->counted_bytes = wanted_bytes;
    }
    return true;
}

static CUresult undo(struct fgw_worker *worker, struct fgw_memory_pool *pool, CUdeviceptr address, uint64_t bytes,
                     CUstream stream)
{
    worker->driver.cuMemFreeAsync(address, stream);
    pool->live_bytes -= bytes;
    pool->nr_live--;
    count(worker, pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes, CUstream stream,
                         uint64_t *address)
{
    const struct fgv_driver *driver = &worker->driver;
    CUdeviceptr made = 0;
    if (!driver->cuMemAllocFromPoolAsync || !driver->cuMemFreeAsync) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!fgw_ranges_make_room(&worker->calls->allocated, FGW_MAX_DEVICE_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!take_ahead(worker, pool, bytes)) {
        fgw_pools_trim(worker);
        if (!take_ahead(worker, pool, bytes)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    CUresult result = driver->cuMemAllocFromPoolAsync(&made, bytes, pool->native, stream);
    if (result == CUDA_SUCCESS) {
        pool->live_bytes += bytes;
        pool->nr_live++;
    }
    if (!count(worker, pool) && result == CUDA_SUCCESS) {
        return undo(worker, pool, made, bytes, stream);
    }
    if (result == CUDA_SUCCESS) {
        fgw_ranges_insert(
            &worker->calls->allocated,
            (struct fgw_range){.address = made, .bytes = bytes, .context = worker->current, .pool = pool});
        *address = made;
    }
    return result;
}

/* A node of the graph that is captured. */
static CUresult capture(struct fgw_worker *worker, const struct fgw_memory_pool *pool, uint64_t bytes, CUstream stream,
                        uint64_t *address)
{
    CUdeviceptr made = 0;
    uint64_t graph;
    CUresult result = fgw_capture_graph(worker, stream, &graph);
    if (result == CUDA_SUCCESS) {
        result = fgw_graph_memory_may_add(worker, graph, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemAllocFromPoolAsync
                     ? worker->driver.cuMemAllocFromPoolAsync(&made, bytes, pool->native, stream)
                     : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
        fgw_graph_memory_add(worker, graph, bytes);
        *address = made;
    }
    return result;
}

static CUresult serve_allocation(struct fgw_worker *worker, uint64_t pool_number, uint64_t stream_number,
                                 uint64_t bytes, uint64_t *address)
{
    struct fgw_memory_pool *pool;
    struct fgw_stream *stream = fgw_stream_find(worker, stream_number);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = find_pool(worker, pool_number, &pool);
    if (result == CUDA_SUCCESS && fgw_stream_is_captured(worker, stream)) {
        return capture(worker, pool, bytes, stream->native, address);
    }
    return result == CUDA_SUCCESS ? allocate(worker, pool, bytes, stream->native, address) : result;
}

CUresult fgw_serve_cuMemAllocFromPoolAsync(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemAllocFromPoolAsync *fixed = request->fixed;
    struct fgv_reply_cuMemAllocFromPoolAsync *answer = reply;
    return serve_allocation(worker, fixed->pool, fixed->stream, fixed->bytes, &answer->address);
}

/* All work is done, frees included: what pools keep can go. */
CUresult fgw_serve_pool_allocate_in_order(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_pool_allocate_in_order *fixed = request->fixed;
    struct fgv_reply_pool_allocate_in_order *answer = reply;
    fgw_pools_trim(worker);
    return serve_allocation(worker, fixed->pool, fixed->stream, fixed->bytes, &answer->address);
}

/* Of pools and graphs only: when the device is done with other memory, nobody tells, and until then it is not the
 * quota's again. What is none of ours may be a graph's, which the driver knows.
 */
CUresult fgw_serve_cuMemFreeAsync(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemFreeAsync *fixed = request->fixed;
    (void)reply;
    struct fgw_stream *stream = fgw_stream_find(worker, fixed->stream);
    struct fgw_range *range = fgw_ranges_find(&worker->calls->allocated, fixed->address);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (fixed->address == 0 || (range && !range->pool)) {
        return CUDA_ERROR_INVALID_VALUE; /* an honest guest frees nothing by itself */
    }
    if (!worker->driver.cuMemFreeAsync) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuMemFreeAsync(fixed->address, stream->native);
    if (result == CUDA_SUCCESS && range) {
        fgw_memory_forget(worker, range);
    }
    uint64_t graph;
    if (result == CUDA_SUCCESS && fgw_stream_is_captured(worker, stream) &&
        fgw_capture_graph(worker, stream->native, &graph) == CUDA_SUCCESS) {
        fgw_graph_memory_add_free(worker, graph);
    }
    return result;
}

CUresult fgw_serve_cuMemPoolCreate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolCreate *fixed = request->fixed;
    (void)reply;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                                 .maxSize = fixed->max_bytes};
    CUmemoryPool native;
    if (!worker->driver.cuMemPoolCreate || !worker->driver.cuMemPoolDestroy) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_worker_can_bind(worker, FGV_HANDLE_MEMORY_POOL, fixed->handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (worker->calls->pools.nr >= FGW_MAX_POOLS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = worker->driver.cuMemPoolCreate(&native, &properties);
    struct fgw_memory_pool *pool = result == CUDA_SUCCESS ? new_pool(worker, native) : NULL;
    if (pool) {
        pool->max_bytes = fixed->max_bytes;
        return fgw_worker_bind(worker, FGV_HANDLE_MEMORY_POOL, fixed->handle, pool);
    }
    if (result == CUDA_SUCCESS) {
        worker->driver.cuMemPoolDestroy(native);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

CUresult fgw_serve_cuMemPoolDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolDestroy *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    CUresult result = fixed->pool == 0 ? CUDA_ERROR_INVALID_VALUE : find_pool(worker, fixed->pool, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = worker->driver.cuMemPoolDestroy(pool->native);
    if (result == CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_MEMORY_POOL, fixed->pool);
    }
    return result;
}

/* Whether a synchronisation would return at once. */
static bool is_idle(const struct fgw_worker *worker)
{
    if (worker->nr_captures != 0 || worker->track->behind.nr != 0) {
        return false;
    }
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        const struct fgw_context *context = worker->contexts[i];
        for (const struct fgw_stream *stream = context ? context->streams : NULL; stream; stream = stream->next) {
            if (stream->last_seq > stream->done_seq) {
                return false;
            }
        }
    }
    return true;
}

CUresult fgw_serve_cuMemPoolTrimTo(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolTrimTo *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    CUresult result = find_pool(worker, fixed->pool, &pool);
    if (worker->current && is_idle(worker)) {
        worker->driver.cuCtxSynchronize(); /* what was freed counts as free once that was seen to be over */
    }
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemPoolTrimTo ? worker->driver.cuMemPoolTrimTo(pool->native, fixed->keep_bytes)
                                                : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
        count(worker, pool);
    }
    return result;
}

static bool is_attribute(uint32_t which)
{
    return which >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && which <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

static bool is_int(uint32_t which)
{
    return which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult fgw_serve_cuMemPoolSetAttribute(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolSetAttribute *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    cuuint64_t value = fixed->value;
    int small_value = (int)fixed->value;
    if (!is_attribute(fixed->attribute)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = find_pool(worker, fixed->pool, &pool);
    if (result != CUDA_SUCCESS || !worker->driver.cuMemPoolSetAttribute) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
    }
    return worker->driver.cuMemPoolSetAttribute(pool->native, (CUmemPool_attribute)fixed->attribute,
                                                is_int(fixed->attribute) ? (void *)&small_value : (void *)&value);
}

CUresult fgw_serve_cuMemPoolGetAttribute(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolGetAttribute *fixed = request->fixed;
    struct fgv_reply_cuMemPoolGetAttribute *answer = reply;
    struct fgw_memory_pool *pool;
    cuuint64_t value = 0;
    if (!is_attribute(fixed->attribute)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = find_pool(worker, fixed->pool, &pool);
    if (result != CUDA_SUCCESS || !worker->driver.cuMemPoolGetAttribute) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
    }
    result = worker->driver.cuMemPoolGetAttribute(pool->native, (CUmemPool_attribute)fixed->attribute, &value);
    answer->value = value;
    return result;
}
