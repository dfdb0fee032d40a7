/* Pinned and managed memory out of the region's heap; freeing memory of any kind, and what is known of it. */
#include "memory/memory.h"

#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "cuda_api/prototypes.h"
#include "memory/heap_pages.h"
#include "memory/pages.h"
#include "memory/ranges.h"
#include "memory/sharing.h"
#include "memory/slabs.h"
#include "memory/span.h"
#include "memory/yield.h"
#include "region/client.h"

const struct fgv_memory_ops *fgv_memory_ops;

/* ---- the heap ---- */

static CUresult host_register(uint64_t address, uint64_t bytes, uint32_t flags)
{
    struct fgv_call call;
    struct fgv_request_host_register *request = fgv_call_begin(&call, FGV_CALL_host_register, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_host_register){.address = address, .bytes = bytes, .flags = flags};
    return fgv_call_wait(&call, NULL, 0);
}

static CUresult heap_take(uint64_t *address, size_t bytes, enum fgv_memory_kind kind, uint32_t flags)
{
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_client_await();
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t rounded_bytes;
    *address = fgv_heap_pages_take(bytes, &rounded_bytes);
    if (*address == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset((void *)(uintptr_t)*address, 0, rounded_bytes); /* another program of this machine may have written there */
    result = host_register(*address, rounded_bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS && !fgv_memory_enter(*address, bytes, kind, flags, 0)) {
        result = CUDA_ERROR_OUT_OF_MEMORY; /* the worker keeps the registration until the context ends */
    }
    if (result != CUDA_SUCCESS) {
        fgv_heap_pages_give(*address, rounded_bytes);
    }
    return result;
}

/* Gives the program pages of its own again, where it has these pages of the heap (registered.c). False without memory.
 */
static bool pages_restore(const struct fgv_range *heap)
{
    struct fgv_range range;
    const uint64_t address = heap->owner;
    if (!fgv_pages_restore(address & ~(uint64_t)(FGV_PAGE_BYTES - 1), heap->bytes, heap->aside)) {
        return false;
    }
    if (fgv_memory_find(address, &range) && range.kind == FGV_MEMORY_REGISTERED) {
        fgv_memory_enter(range.address, range.bytes, FGV_MEMORY_REGISTERED, range.flags, 0);
    }
    return true;
}

static void heap_free(const struct fgv_range *range)
{
    if (range->owner != 0 && !pages_restore(range)) {
        return; /* they stay taken until the program ends */
    }
    fgv_heap_pages_give(range->address, range->bytes);
}

static CUresult heap_return(uint64_t address, enum fgv_memory_kind kind)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_memory_find(address, &range) || range.address != address || range.kind != kind) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_request_host_unregister *request = fgv_call_begin(&call, FGV_CALL_host_unregister, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->address = address;
    result = fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS && fgv_memory_remove(address, kind, &range)) {
        heap_free(&range);
    }
    return result;
}

/* Pages that the worker would not let go of stay taken until the program ends: the device may still write there. */
static void release(struct fgv_range *range)
{
    struct fgv_call call;
    struct fgv_request_host_unregister *request =
        fgv_call_begin_for(&call, FGV_CALL_host_unregister, sizeof(*request), 0, range->context_handle);
    if (request) {
        request->address = range->address;
    }
    CUresult result = !request ? call.error : fgv_call_wait(&call, NULL, 0);
    if (fgv_memory_remove(range->address, range->kind, range) && result == CUDA_SUCCESS) {
        heap_free(range);
    }
}

void fgv_memory_release_shared(const struct fgv_context *context)
{
    struct fgv_range range;
    while (fgv_memory_next_shared(context, &range)) {
        release(&range);
    }
}

CUresult fgv_memory_take_own(uint64_t bytes, struct fgv_range *range)
{
    uint64_t address;
    CUresult result = heap_take(&address, bytes, FGV_MEMORY_PINNED, 0);
    return result != CUDA_SUCCESS || fgv_memory_find(address, range) ? result : CUDA_ERROR_UNKNOWN;
}

/* The context may have gone, and its memory with it, and something else may lie there now. */
void fgv_memory_give_own(const struct fgv_range *range)
{
    struct fgv_range now;
    if (fgv_memory_find(range->address, &now) && now.id == range->id) {
        release(&now);
    }
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || (Flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    uint64_t address = 0; /* of no bytes, NULL */
    CUresult result = bytesize == 0 ? fgv_call_allowed() : heap_take(&address, bytesize, FGV_MEMORY_PINNED, Flags);
    if (result == CUDA_SUCCESS) {
        *pp = (void *)(uintptr_t)address;
    }
    return result;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    if (!p) {
        return fgv_thread.current == 0 ? fgv_client_is_open() : fgv_call_allowed();
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return heap_return((uint64_t)(uintptr_t)p, FGV_MEMORY_PINNED);
}

CUresult fgv_memory_take_managed(uint64_t *address, uint64_t bytes, uint32_t flags)
{
    return heap_take(address, bytes, FGV_MEMORY_MANAGED_HEAP, flags);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    struct fgv_range range;
    if (dptr == 0) {
        return fgv_thread.current == 0 ? fgv_client_is_open() : fgv_call_healthy();
    }
    CUresult result = fgv_call_allowed();
    if (result == CUDA_ERROR_INVALID_CONTEXT && !fgv_memory_find(dptr, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!fgv_memory_find(dptr, &range) || range.address != dptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_memory_is_managed(range.kind)) {
        if (range.owner != 0) {
            return CUDA_ERROR_INVALID_VALUE; /* a variable */
        }
        fgv_memory_ops->managed_forget(&range);
        return range.kind == FGV_MEMORY_MANAGED ? fgv_memory_ops->managed_free(&range)
                                                : heap_return(dptr, FGV_MEMORY_MANAGED_HEAP);
    }
    if (range.kind == FGV_MEMORY_IMPORTED && range.owner != 0) {
        return fgv_sharing_close(&range);
    }
    if (range.kind != FGV_MEMORY_DEVICE && range.kind != FGV_MEMORY_POOLED && range.kind != FGV_MEMORY_GRAPH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range.kind == FGV_MEMORY_DEVICE && range.owner != 0) {
        result = fgv_slab_wait();
        if (!fgv_memory_remove(dptr, FGV_MEMORY_DEVICE, &range)) {
            return CUDA_ERROR_INVALID_VALUE; /* another thread frees it, too */
        }
        fgv_yield_forget(&range);
        fgv_slab_free(range.owner);
        return result;
    }
    struct fgv_call call;
    struct fgv_request_cuMemFree_v2 *request = fgv_call_begin(&call, FGV_CALL_cuMemFree_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->dptr = dptr;
    /* Removed before the host can give the address to another thread's allocation. */
    if (range.kind != FGV_MEMORY_GRAPH) {
        fgv_memory_remove(dptr, range.kind, &range);
    }
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_memory_find(dptr, &range) || range.kind == FGV_MEMORY_REGISTERED) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (pbase) {
        *pbase = range.address;
    }
    if (psize) {
        *psize = range.bytes;
    }
    return CUDA_SUCCESS;
}

/* What a box reaches over: false when there is no such number. */
static bool box_bytes(uint32_t element_bytes, size_t width, size_t height, size_t pitch, uint64_t *row_bytes,
                      uint64_t *bytes)
{
    uint64_t rows_bytes;
    return !__builtin_mul_overflow((uint64_t)width, (uint64_t)element_bytes, row_bytes) &&
           !__builtin_mul_overflow((uint64_t)height - 1, (uint64_t)pitch, &rows_bytes) &&
           !__builtin_add_overflow(rows_bytes, *row_bytes, bytes);
}

bool fgv_memory_overruns(CUdeviceptr address, uint32_t element_bytes, size_t width, size_t height, size_t pitch)
{
    struct fgv_range range;
    uint64_t row_bytes, bytes, end;
    if (width == 0 || height == 0) {
        return false;
    }
    if (!fgv_memory_find(address, &range)) {
        return fgv_span_has(address);
    }
    if (range.kind != FGV_MEMORY_DEVICE || range.owner == 0) {
        return false;
    }
    /* What wraps a driver lets pass, and it ends in a fault. */
    return box_bytes(element_bytes, width, height, pitch, &row_bytes, &bytes) &&
           !__builtin_add_overflow(address, bytes, &end) && !fgv_memory_covers(address, bytes);
}

bool fgv_memory_has(CUdeviceptr address, uint32_t element_bytes, size_t width, size_t height, size_t pitch)
{
    uint64_t row_bytes, bytes;
    if (width == 0 || height == 0) {
        return true;
    }
    if (!box_bytes(element_bytes, width, height, pitch, &row_bytes, &bytes)) {
        return false;
    }
    if (address % element_bytes != 0 || (height > 1 && (pitch < row_bytes || pitch % element_bytes != 0))) {
        return false;
    }
    return fgv_memory_covers(address, bytes);
}

CUresult fgv_memory_settle(CUdeviceptr address)
{
    struct fgv_range range;
    if (!fgv_memory_find(address, &range) || !(fgv_memory_is_shared(range.kind) || fgv_memory_is_managed(range.kind))) {
        return CUDA_SUCCESS;
    }
    return cuStreamSynchronize(NULL);
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pFlags || !fgv_memory_find((uint64_t)(uintptr_t)p, &range) ||
        (range.kind != FGV_MEMORY_PINNED && range.kind != FGV_MEMORY_REGISTERED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* With unified addressing all pinned memory is mapped, whatever was asked for. */
    *pFlags = range.flags | (range.kind == FGV_MEMORY_PINNED ? CU_MEMHOSTALLOC_DEVICEMAP : 0);
    return CUDA_SUCCESS;
}
