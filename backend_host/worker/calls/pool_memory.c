/*
 * Allocating and freeing in the order of streams. In a stream that is captured an allocation is none of a pool's:
 * graph_memory.h.
 */
#include "calls/graph.h"
#include "calls/graph_memory.h"
#include "calls/lack.h"
#include "calls/memory.h"
#include "calls/pool.h"
#include "calls/pool_holding.h"
#include "calls/state.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "track/legacy.h"
#include "track/sync.h"
#include "turn/yield.h"

static CUresult allocate(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes,
                         struct fgw_stream *stream, uint64_t *address)
{
    struct fgw_block *block = NULL;
    if (bytes > UINT64_MAX / 4 || !fgw_ranges_make_room(&worker->calls->allocated, FGW_MAX_DEVICE_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fgw_pool_take(worker, pool, bytes, stream, &block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker);
        result = fgw_pool_take(worker, pool, bytes, stream, &block);
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
    fgw_pool_count(worker, pool);
    return result;
}

/* Tells whether what is freed in the stream may still be used. */
static bool may_be_used(struct fgw_worker *worker, struct fgw_stream *stream)
{
    fgw_legacy_involve(worker, stream);
    if (stream->nr_unmarked == 0) {
        fgw_stream_mark(worker, stream); /* where there is no work to be marked, no other mark need come */
    }
    return !fgw_pool_is_done(stream, stream->last_seq);
}

void fgw_pool_free(struct fgw_worker *worker, const struct fgw_range *range, struct fgw_stream *stream)
{
    struct fgw_memory_pool *pool = range->pool;
    const bool is_waiting = stream && may_be_used(worker, stream);
    if (is_waiting) {
        stream->nr_waiters++;
    }
    fgw_blocks_free(&pool->blocks, (struct fgw_block *)(uintptr_t)range->owner, is_waiting ? stream : NULL,
                    is_waiting ? stream->last_seq : 0);
    pool->live_bytes -= range->bytes;
    pool->nr_live--;
    fgw_pool_count(worker, pool);
    fgw_pool_end_if_unused(worker, pool);
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
        result = result == CUDA_ERROR_OUT_OF_MEMORY ? fgw_lack_of(worker, bytes) : result;
    }
    if (result == CUDA_SUCCESS) {
        fgw_graph_memory_add(worker, graph, bytes);
        *address = made;
        fgw_told_watch(worker, made, bytes);
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
    CUresult result = fgw_pool_find(worker, pool_number, &pool);
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
        fgw_yield_forget(worker, range->address, range->bytes);
        fgw_memory_forget(worker, range, stream);
        return CUDA_SUCCESS;
    }
    if (!worker->driver.cuMemFreeAsync) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuMemFreeAsync(fixed->address, stream->native);
    uint64_t graph;
    if (result == CUDA_SUCCESS && !is_captured) {
        fgw_stream_touch(worker, stream);
    }
    if (result == CUDA_SUCCESS && is_captured && fgw_capture_graph(worker, stream->native, &graph) == CUDA_SUCCESS) {
        fgw_graph_memory_add_free(worker, graph);
    }
    return result;
}
