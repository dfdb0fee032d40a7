/*
 * Stream-ordered memory under the vGPU's quota. A pool is ours alone: it grows in segments of the span by steps, is cut
 * into blocks (pool_blocks.h), and gives back, extent by extent, what nobody waits for. Where there is no span each
 * step is a piece of the driver's, which goes back whole.
 *
 * A pool keeps memory that was freed, so a quota on what is allocated would bound nothing. What counts is the larger of
 * what the client has allocated and what the pool holds, less one step, which is the host's affair as any rounding is.
 *
 * What is more than the pool's threshold goes back when the client's work has ended: within 50 ms, or when somebody
 * asks what is free or held. CUDA does that when the client waits for the end.
 *
 * In a stream that is captured an allocation is none of a pool's: graph_memory.h.
 */
#include "calls/pool.h"

#include <stdlib.h>

#include "calls/graph.h"
#include "calls/graph_memory.h"
#include "calls/memory.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "page/account.h"
#include "track/state.h"

#define MAX_POOLS 32u /* each may hold one step unseen */
/* Of the span's addresses a segment takes as much, so that a pool grows in place: the default one's is as large as the
 * device's memory. */
#define DEFAULT_DIVISOR 4u
#define SEGMENT_DIVISOR 64u

static bool is_done(const struct fgw_stream *stream, uint64_t seq)
{
    return stream->done_seq >= seq;
}

static void left(struct fgw_stream *stream)
{
    stream->nr_waiters--;
    fgw_stream_free_if_unused(stream);
}

static const struct fgw_block_hooks hooks = {.is_done = is_done, .left = left};

/* ---- the quota ---- */

static uint64_t due_bytes(uint64_t live_bytes, uint64_t reserved_bytes)
{
    const uint64_t kept_bytes = reserved_bytes > FGW_POOL_STEP ? reserved_bytes - FGW_POOL_STEP : 0;
    return kept_bytes > live_bytes ? kept_bytes : live_bytes;
}

/* Counts so much; false when the quota has less. */
static bool charge(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    if (bytes <= pool->counted_bytes) {
        fgw_quota_give(&worker->grantee, pool->counted_bytes - bytes);
    } else if (!fgw_quota_take(&worker->grantee, bytes - pool->counted_bytes)) {
        return false;
    }
    pool->counted_bytes = bytes;
    return true;
}

/* Counts what the pool holds now, which is no more than was counted before. */
static void count(struct fgw_worker *worker, struct fgw_memory_pool *pool)
{
    charge(worker, pool, due_bytes(pool->live_bytes, pool->blocks.reserved_bytes));
    if (pool->blocks.reserved_bytes > pool->reserved_high_bytes) {
        pool->reserved_high_bytes = pool->blocks.reserved_bytes;
    }
    if (pool->live_bytes > pool->used_high_bytes) {
        pool->used_high_bytes = pool->live_bytes;
    }
}

/* ---- giving back ---- */

static bool is_idle(const struct fgw_worker *worker)
{
    return fgw_track_nr_open(worker) == 0 && worker->track->behind.nr == 0;
}

/* Of a free block: its last whole extent. False: there is none, or the pool may keep it. */
static bool release_extent(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_block *block,
                           uint64_t keep_bytes)
{
    struct fgw_range extent;
    uint64_t dropped_bytes = 0;
    if (!fgw_span_last_whole(worker, block->address, block->bytes, &extent) ||
        pool->blocks.reserved_bytes < keep_bytes + extent.bytes ||
        !fgw_blocks_emptied(&pool->blocks, block, extent.address, extent.bytes)) {
        return false;
    }
    fgw_span_empty(worker, extent.address, extent.bytes, &dropped_bytes);
    return true;
}

static void release_in_segment(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_segment *segment,
                               uint64_t keep_bytes)
{
    for (struct fgw_block *block = segment->first; block;) {
        const bool is_released = block->state == FGW_BLOCK_FREE && release_extent(worker, pool, block, keep_bytes);
        block = is_released ? segment->first : block->behind;
    }
    if (!segment->first->behind && segment->first->state == FGW_BLOCK_HOLE) {
        const uint64_t address = segment->address;
        fgw_blocks_remove(&pool->blocks, segment);
        fgw_span_give(worker, address);
    }
}

/* A piece of the driver's, which would wait for work that runs. */
static void release_piece(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_segment *segment,
                          uint64_t keep_bytes)
{
    const uint64_t address = segment->address, bytes = segment->bytes;
    if (!segment->first->behind && segment->first->state == FGW_BLOCK_FREE && is_idle(worker) &&
        pool->blocks.reserved_bytes >= keep_bytes + bytes) {
        fgw_blocks_remove(&pool->blocks, segment);
        fgw_span_free(worker, address, bytes);
    }
}

/* Gives back what is free, down to so much. */
static void release(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t keep_bytes)
{
    fgw_blocks_settle(&pool->blocks, &hooks);
    for (struct fgw_segment *segment = pool->blocks.segments; segment;) {
        struct fgw_segment *next = segment->next;
        if (worker->calls->span.bytes != 0) {
            release_in_segment(worker, pool, segment, keep_bytes);
        } else {
            release_piece(worker, pool, segment, keep_bytes);
        }
        segment = next;
    }
    count(worker, pool);
}

/* Frees it if nothing of it is used any more. */
static void end_if_unused(struct fgw_worker *worker, struct fgw_memory_pool *pool)
{
    struct fgw_memory_pool **link = &worker->calls->pools.first;
    if (!pool->is_destroyed || pool->nr_live != 0) {
        return;
    }
    release(worker, pool, 0);
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
        release(worker, pool, 0);
    }
}

void fgw_pools_rest(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first, *next; pool; pool = next) {
        next = pool->next;
        if (pool->blocks.reserved_bytes > pool->threshold_bytes && is_idle(worker)) {
            release(worker, pool, pool->threshold_bytes);
        }
        end_if_unused(worker, pool);
    }
}

void fgw_pools_settle(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first; pool; pool = pool->next) {
        fgw_blocks_settle(&pool->blocks, &hooks);
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
                fgw_blocks_lose(&pool->blocks, segment, &hooks);
            }
        }
        count(worker, pool);
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

/* ---- pools ---- */

static struct fgw_memory_pool *new_pool(struct fgw_worker *worker)
{
    struct fgw_memory_pool *pool = worker->calls->pools.nr < MAX_POOLS ? calloc(1, sizeof(*pool)) : NULL;
    if (pool) {
        for (uint32_t i = 0; i < FGW_POOL_NR_REUSES; i++) {
            pool->reuse[i] = 1;
        }
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
    end_if_unused(worker, pool);
}

void fgw_pools_drop(struct fgw_worker *worker)
{
    for (struct fgw_memory_pool *pool = worker->calls->pools.first, *next; pool; pool = next) {
        next = pool->next;
        fgw_quota_give(&worker->grantee, pool->counted_bytes);
        fgw_blocks_drop(&pool->blocks, &hooks);
        free(pool);
    }
    worker->calls->pools = (struct fgw_memory_pools){0};
}

/* 0: the device's own. */
static CUresult find_pool(struct fgw_worker *worker, uint64_t number, struct fgw_memory_pool **pool)
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

/* ---- growing ---- */

static uint64_t round_to_steps(uint64_t bytes)
{
    return (bytes + FGW_POOL_STEP - 1) / FGW_POOL_STEP * FGW_POOL_STEP;
}

/* Addresses to grow into. */
static CUresult add_segment(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    const struct fgw_span *span = &worker->calls->span;
    const bool is_default = pool == worker->calls->pools.by_default;
    const uint64_t share_bytes = round_to_steps(span->bytes / (is_default ? DEFAULT_DIVISOR : SEGMENT_DIVISOR));
    uint64_t segment_bytes = share_bytes > round_to_steps(bytes) ? share_bytes : round_to_steps(bytes), address;
    if (bytes > span->bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!fgw_span_take(worker, segment_bytes, &address)) {
        segment_bytes = round_to_steps(bytes);
        if (!fgw_span_take(worker, segment_bytes, &address)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (!fgw_blocks_add(&pool->blocks, address, segment_bytes, NULL)) {
        fgw_span_give(worker, address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Makes sure of quota for so many bytes more in the pool, of which the client gets `bytes`. */
static bool may_grow(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes, uint64_t grown_bytes)
{
    const uint64_t reserved_bytes = pool->blocks.reserved_bytes + grown_bytes;
    return (pool->max_bytes == 0 || reserved_bytes <= pool->max_bytes) &&
           charge(worker, pool, due_bytes(pool->live_bytes + bytes, reserved_bytes));
}

static CUresult grow_in_span(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    uint64_t grown_bytes, dropped_bytes = 0;
    struct fgw_block *hole = fgw_blocks_room(&pool->blocks, bytes, &grown_bytes);
    if (!hole) {
        CUresult result = add_segment(worker, pool, bytes);
        hole = result == CUDA_SUCCESS ? fgw_blocks_room(&pool->blocks, bytes, &grown_bytes) : NULL;
    }
    if (!hole || !may_grow(worker, pool, bytes, grown_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const uint64_t address = hole->address;
    CUresult result = fgw_span_fill(worker, address, grown_bytes);
    if (result == CUDA_SUCCESS && !fgw_blocks_filled(&pool->blocks, hole, grown_bytes)) {
        fgw_span_empty(worker, address, grown_bytes, &dropped_bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult grow_by_a_piece(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    const uint64_t grown_bytes = round_to_steps(bytes);
    uint64_t address;
    if (!may_grow(worker, pool, bytes, grown_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fgw_span_allocate(worker, grown_bytes, &address);
    if (result == CUDA_SUCCESS && !fgw_blocks_add(&pool->blocks, address, grown_bytes, worker->current)) {
        fgw_span_free(worker, address, grown_bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult grow(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    return worker->calls->span.bytes != 0 ? grow_in_span(worker, pool, bytes) : grow_by_a_piece(worker, pool, bytes);
}

/* ---- allocating and freeing ---- */

/* A block that is paid for. */
static CUresult take(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes,
                     const struct fgw_stream *stream, struct fgw_block **block)
{
    if (!charge(worker, pool, due_bytes(pool->live_bytes + bytes, pool->blocks.reserved_bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = fgw_blocks_take(&pool->blocks, bytes, stream, &hooks);
    if (!*block) {
        CUresult result = grow(worker, pool, bytes);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        *block = fgw_blocks_take(&pool->blocks, bytes, stream, &hooks);
    }
    return *block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes,
                         struct fgw_stream *stream, uint64_t *address)
{
    struct fgw_block *block = NULL;
    if (bytes > UINT64_MAX / 4 || !fgw_ranges_make_room(&worker->calls->allocated, FGW_MAX_DEVICE_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = take(worker, pool, bytes, stream, &block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker);
        result = take(worker, pool, bytes, stream, &block);
    }
    if (result == CUDA_SUCCESS) {
        pool->live_bytes += bytes;
        pool->nr_live++;
        *address = block->address;
        fgw_ranges_insert(&worker->calls->allocated, (struct fgw_range){.address = block->address,
                                                                        .bytes = bytes,
                                                                        .context = worker->current,
                                                                        .pool = pool,
                                                                        .owner = (uint64_t)(uintptr_t)block});
    }
    count(worker, pool);
    return result;
}

void fgw_pool_free(struct fgw_worker *worker, const struct fgw_range *range, struct fgw_stream *stream)
{
    struct fgw_memory_pool *pool = range->pool;
    const bool is_waiting = stream && !is_done(stream, stream->last_seq);
    if (is_waiting) {
        stream->nr_waiters++;
    }
    fgw_blocks_free(&pool->blocks, (struct fgw_block *)(uintptr_t)range->owner, is_waiting ? stream : NULL,
                    is_waiting ? stream->last_seq : 0);
    pool->live_bytes -= range->bytes;
    pool->nr_live--;
    count(worker, pool);
    end_if_unused(worker, pool);
}

/* A node of the graph that is captured, whose memory is the driver's. */
static CUresult capture(struct fgw_worker *worker, uint64_t bytes, CUstream stream, uint64_t *address)
{
    const struct fgv_driver *driver = &worker->driver;
    CUdeviceptr made = 0;
    CUmemoryPool native;
    uint64_t graph;
    if (!driver->cuMemAllocFromPoolAsync || !driver->cuDeviceGetDefaultMemPool) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_capture_graph(worker, stream, &graph);
    if (result == CUDA_SUCCESS) {
        result = fgw_graph_memory_may_add(worker, graph, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = driver->cuDeviceGetDefaultMemPool(&native, worker->device);
    }
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemAllocFromPoolAsync(&made, bytes, native, stream);
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
        return capture(worker, bytes, stream->native, address);
    }
    return result == CUDA_SUCCESS ? allocate(worker, pool, bytes, stream, address) : result;
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

/* Of pools and graphs only: what else is freed waits, and is not freed so. What is none of ours may be a graph's, which
 * the driver knows. */
CUresult fgw_serve_cuMemFreeAsync(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemFreeAsync *fixed = request->fixed;
    (void)reply;
    struct fgw_stream *stream = fgw_stream_find(worker, fixed->stream);
    struct fgw_range *range = fgw_ranges_find(&worker->calls->allocated, fixed->address);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const bool is_captured = fgw_stream_is_captured(worker, stream);
    if (fixed->address == 0 || (range ? !range->pool || is_captured : fgw_pools_have(worker, fixed->address))) {
        return CUDA_ERROR_INVALID_VALUE; /* an honest guest frees nothing by itself */
    }
    if (range) {
        fgw_memory_forget(worker, range, stream);
        return CUDA_SUCCESS;
    }
    if (!worker->driver.cuMemFreeAsync) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuMemFreeAsync(fixed->address, stream->native);
    uint64_t graph;
    if (result == CUDA_SUCCESS && is_captured && fgw_capture_graph(worker, stream->native, &graph) == CUDA_SUCCESS) {
        fgw_graph_memory_add_free(worker, graph);
    }
    return result;
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
    pool->max_bytes = fixed->max_bytes;
    return fgw_worker_bind(worker, FGV_HANDLE_MEMORY_POOL, fixed->handle, pool);
}

CUresult fgw_serve_cuMemPoolDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolDestroy *fixed = request->fixed;
    (void)reply;
    struct fgw_memory_pool *pool;
    CUresult result = fixed->pool == 0 ? CUDA_ERROR_INVALID_VALUE : find_pool(worker, fixed->pool, &pool);
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
    CUresult result = find_pool(worker, fixed->pool, &pool);
    if (result == CUDA_SUCCESS) {
        release(worker, pool, fixed->keep_bytes);
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
    CUresult result = find_pool(worker, fixed->pool, &pool);
    return result == CUDA_SUCCESS ? fgw_pool_set(pool, fixed->attribute, fixed->value) : result;
}

CUresult fgw_serve_cuMemPoolGetAttribute(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemPoolGetAttribute *fixed = request->fixed;
    struct fgv_reply_cuMemPoolGetAttribute *answer = reply;
    struct fgw_memory_pool *pool;
    CUresult result = find_pool(worker, fixed->pool, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgw_pools_rest(worker);
    return fgw_pool_get(pool, fixed->attribute, &answer->value);
}
