/*
 * Allocating and freeing in the order of a stream. An allocation is answered here when the same stream freed the same
 * size before (pool_cache.h), else by the host, at any time: it needs no place among the client's work. A free is sent
 * and not waited for.
 *
 * When memory has run out, what is kept here is freed and the host asked again, behind all work: CUDA waits then, too.
 */
#include "base/thread.h"
#include "call/call.h"
#include "call/device.h"
#include "context/capture_rules.h"
#include "context/context.h"
#include "context/pool_cache.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "memory/pool.h"
#include "memory/ranges.h"
#include "memory/span.h"
#include "memory/yield.h"

#define KEPT_DIVISOR 4u /* of the device's memory */

/* In a capture an allocation is a node of a graph, and nothing may be had again. */
static bool is_captured(uint64_t stream)
{
    struct fgv_reply_capture_info reply;
    return __builtin_expect(atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0, 0) &&
           (fgv_capture_ask(stream, FGV_NO_CHUNK, &reply) != CUDA_SUCCESS ||
            reply.status != CU_STREAM_CAPTURE_STATUS_NONE);
}

_Static_assert(sizeof(struct fgv_request_cuMemAllocFromPoolAsync) ==
                       sizeof(struct fgv_request_pool_allocate_in_order) &&
                   sizeof(struct fgv_reply_cuMemAllocFromPoolAsync) == sizeof(struct fgv_reply_pool_allocate_in_order),
               "both are asked and answered alike");

static CUresult ask(uint16_t number, uint64_t pool_wire, uint64_t stream, uint64_t bytes, uint64_t *address)
{
    struct fgv_call call;
    struct fgv_reply_cuMemAllocFromPoolAsync reply;
    const CUresult opened = fgv_span_open(); /* a pool's memory may be the program's first */
    if (opened != CUDA_SUCCESS) {
        return opened;
    }
    struct fgv_request_cuMemAllocFromPoolAsync *request = fgv_call_begin(&call, number, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemAllocFromPoolAsync){.pool = pool_wire, .stream = stream, .bytes = bytes};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    *address = result == CUDA_SUCCESS ? reply.address : 0;
    return result;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgv_memory_pool *found = fgv_memory_pool_find(pool);
    const uint64_t stream = fgv_stream_wire(hStream);
    if (stream == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!dptr || !found || found->is_imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytesize == 0) {
        *dptr = 0;
        return CUDA_SUCCESS;
    }
    const uint64_t handle = (uint64_t)(uintptr_t)pool;
    const struct fgv_pool_place place = {.pool = handle, .stream = stream, .context = fgv_thread.current};
    const bool is_a_node = is_captured(stream);
    uint64_t address;
    if (found->threshold_bytes == 0 || is_a_node || !fgv_pool_cache_take(&place, bytesize, &address)) {
        const uint64_t wire = found->is_default ? 0 : handle;
        result = ask(FGV_CALL_cuMemAllocFromPoolAsync, wire, stream, bytesize, &address);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && !is_a_node) {
            fgv_pool_cache_flush(0);
            result = ask(FGV_CALL_pool_allocate_in_order, wire, stream, bytesize, &address);
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (!fgv_memory_enter(address, bytesize, is_a_node ? FGV_MEMORY_GRAPH : FGV_MEMORY_POOLED, 0,
                          is_a_node ? 0 : handle)) {
        return CUDA_ERROR_OUT_OF_MEMORY; /* the worker keeps it until the context ends */
    }
    *dptr = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    CUmemoryPool pool;
    struct fgv_context *context;
    CUresult result = fgv_context_current(&context);
    if (result == CUDA_SUCCESS) {
        result = fgv_memory_pool_current(context->ordinal, &pool);
    }
    return result == CUDA_SUCCESS ? cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream) : result;
}

/* In the context that it was allocated in, with which it goes. */
static bool keep(const struct fgv_range *range, uint64_t stream)
{
    const struct fgv_memory_pool *pool = fgv_memory_pool_find((CUmemoryPool)(uintptr_t)range->owner);
    if (!pool || pool->threshold_bytes == 0 || range->context_handle != fgv_thread.current || is_captured(stream)) {
        return false;
    }
    fgv_yield_forget(range);
    const struct fgv_pool_place place = {.pool = range->owner, .stream = stream, .context = fgv_thread.current};
    return fgv_pool_cache_give(&place, range->bytes, range->address, pool->threshold_bytes,
                               fgv_device_facts(pool->ordinal)->total_bytes / KEPT_DIVISOR);
}

/* Memory of cuMemAlloc, and of imported pools, is freed so, too, after everything before it: the call waits for that.
 * Only the host knows whether memory of a graph is allocated now. */
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint64_t stream = fgv_stream_wire(hStream);
    if (stream == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (dptr == 0 && !is_captured(stream)) {
        return fgv_call_healthy();
    }
    if (!fgv_memory_find(dptr, &range) || range.address != dptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range.kind == FGV_MEMORY_DEVICE || range.kind == FGV_MEMORY_IMPORTED) {
        return cuMemFree_v2(dptr);
    }
    if (is_captured(stream) && range.kind != FGV_MEMORY_GRAPH) {
        return CUDA_ERROR_INVALID_VALUE; /* a graph frees what graphs allocate */
    }
    if (range.kind != FGV_MEMORY_GRAPH && !fgv_memory_remove(dptr, FGV_MEMORY_POOLED, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range.kind != FGV_MEMORY_GRAPH && keep(&range, stream)) {
        return CUDA_SUCCESS;
    }
    struct fgv_call call;
    struct fgv_request_cuMemFreeAsync *request = fgv_call_begin(&call, FGV_CALL_cuMemFreeAsync, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemFreeAsync){.address = dptr, .stream = stream};
    return range.kind == FGV_MEMORY_GRAPH ? fgv_call_wait(&call, NULL, 0) : fgv_call_post(&call);
}
