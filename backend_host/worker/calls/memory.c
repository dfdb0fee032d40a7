/*
 * Device memory under the vGPU's quota, and host memory of the region registered with the driver.
 *
 * The quota stands in front of the driver's own calls: the generated handlers call through a table of functions in
 * which these four are replaced. Pools and physical memory take from the same quota: pool.c, physical.c. Memory of the
 * span counts in its steps, as it takes the device; what the driver rounds up elsewhere is the host's affair.
 *
 * Registered memory lies in the region at the same address as in the guest program, so a device address of it is the
 * program's own pointer.
 */
#include "calls/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "calls/exports.h"
#include "calls/graph_memory.h"
#include "calls/pool.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/region.h"
#include "page/account.h"
#include "page/layout.h"
#include "page/room.h"
#include "turn/yield.h"

static struct fgv_driver real; /* the wrapped calls of the one device library of this process */

bool fgw_memory_take(struct fgw_worker *worker, uint64_t bytes)
{
    if (fgw_quota_take(&worker->grantee, bytes)) {
        return true;
    }
    fgw_memory_trim(worker);
    return fgw_quota_take(&worker->grantee, bytes);
}

bool fgw_memory_place(struct fgw_worker *worker, uint64_t bytes)
{
    if (!fgw_memory_take(worker, bytes)) {
        return false;
    }
    if (fgw_room_place(&worker->grantee, bytes)) {
        return true;
    }
    fgw_memory_trim(worker);
    if (fgw_room_place(&worker->grantee, bytes)) {
        return true;
    }
    fgw_quota_give(&worker->grantee, bytes);
    return false;
}

void fgw_memory_unplace(struct fgw_worker *worker, uint64_t bytes)
{
    fgw_room_unplace(&worker->grantee, bytes);
    fgw_quota_give(&worker->grantee, bytes);
}

uint64_t fgw_memory_unused(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    const bool is_known = real.cuMemGetInfo_v2 && real.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
    return is_known ? free_bytes : UINT64_MAX;
}

void fgw_memory_trim(struct fgw_worker *worker)
{
    fgw_pools_trim(worker);
    fgw_graph_memory_trim(worker);
}

/* Where there is no span, what the driver places stays on the device. */
static CUresult reserve(struct fgw_worker *worker, uint64_t bytes)
{
    const uint64_t span_bytes = worker->calls->span.bytes;
    const bool fits = fgw_ranges_make_room(&worker->calls->allocated, FGW_MAX_DEVICE_RANGES) &&
                      (span_bytes == 0 ? fgw_memory_place(worker, bytes)
                                       : bytes <= span_bytes && fgw_memory_take(worker, fgw_span_round(bytes)));
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void unreserve(struct fgw_worker *worker, uint64_t bytes)
{
    if (worker->calls->span.bytes == 0) {
        fgw_memory_unplace(worker, bytes);
    } else {
        fgw_quota_give(&worker->grantee, fgw_span_round(bytes));
    }
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
    struct fgw_worker *worker = fgw_the_worker;
    uint64_t placed;
    CUresult result = reserve(worker, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fgw_span_allocate(worker, bytes, &placed);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker); /* pools and graphs may have what there is */
        result = fgw_span_allocate(worker, bytes, &placed);
    }
    if (result != CUDA_SUCCESS) {
        unreserve(worker, bytes);
        return result;
    }
    fgw_ranges_insert(&worker->calls->allocated,
                      (struct fgw_range){.address = placed, .bytes = bytes, .context = worker->current});
    *address = placed;
    return CUDA_SUCCESS;
}

/* What is none of ours may be a graph's, which the driver knows. */
static CUresult deallocate(CUdeviceptr address)
{
    struct fgw_worker *worker = fgw_the_worker;
    struct fgw_range *range = fgw_ranges_find(&worker->calls->allocated, address);
    CUresult result = CUDA_SUCCESS;
    if (range) {
        fgw_yield_forget(worker, range->address, range->bytes);
    }
    if (!range) {
        result = fgw_pools_have(worker, address) ? CUDA_ERROR_INVALID_VALUE : real.cuMemFree_v2(address);
    } else if (!range->pool) {
        fgw_exports_forget(worker, address);
        result = fgw_span_free(worker, address, range->bytes);
    }
    if (result == CUDA_SUCCESS && range) {
        fgw_memory_forget(worker, range, NULL);
    }
    return result;
}

void fgw_memory_forget(struct fgw_worker *worker, struct fgw_range *range, struct fgw_stream *stream)
{
    struct fgw_range gone = *range;
    fgw_ranges_erase(&worker->calls->allocated, range);
    if (gone.pool) {
        fgw_pool_free(worker, &gone, stream); /* what is shared of a pool is a piece of it */
    } else {
        unreserve(worker, gone.bytes);
    }
}

/* With a quota the vGPU is the device: what its other programs hold is what is not free. Where more may be allocated
 * than there is, what others have on the device now is no matter. */
static CUresult get_info(size_t *free_bytes, size_t *total_bytes)
{
    fgw_pools_rest(fgw_the_worker);
    CUresult result = real.cuMemGetInfo_v2(free_bytes, total_bytes);
    uint64_t room_bytes, most_bytes;
    if (result == CUDA_SUCCESS && fgw_room_free(&fgw_the_worker->grantee, &room_bytes, &most_bytes)) {
        *total_bytes = most_bytes < *total_bytes ? most_bytes : *total_bytes;
        room_bytes -=
            fgw_the_worker->calls->promised_bytes < room_bytes ? fgw_the_worker->calls->promised_bytes : room_bytes;
        *free_bytes =
            room_bytes < *free_bytes || fgw_room_is_short(&fgw_the_worker->grantee) ? room_bytes : *free_bytes;
    }
    uint64_t quota_bytes;
    uint64_t used_bytes = fgw_quota_used(&fgw_the_worker->grantee, &quota_bytes);
    if (result == CUDA_SUCCESS && quota_bytes != 0) {
        uint64_t left_bytes = quota_bytes > used_bytes ? quota_bytes - used_bytes : 0;
        *free_bytes = left_bytes < *free_bytes ? left_bytes : *free_bytes;
        *total_bytes = quota_bytes < *total_bytes ? quota_bytes : *total_bytes;
    }
    return result;
}

void fgw_memory_wrap(struct fgv_driver *driver)
{
    real = *driver;
    fgw_span_init(driver);
    driver->cuMemAlloc_v2 = real.cuMemAlloc_v2 ? allocate : NULL;
    driver->cuMemFree_v2 = real.cuMemFree_v2 ? deallocate : NULL;
    driver->cuMemGetInfo_v2 = real.cuMemGetInfo_v2 ? get_info : NULL;
}

/* Where there is no span, memory goes with the context that it was made in. */
static bool goes_with(const struct fgw_worker *worker, const struct fgw_range *range, const struct fgw_context *context)
{
    return !context || range->context == context ||
           (worker->calls->span.bytes == 0 && range->pool && fgw_pool_is_piece_of(range, context));
}

void fgw_memory_drop_context(struct fgw_worker *worker, const struct fgw_context *context)
{
    struct fgw_ranges *ranges = &worker->calls->allocated;
    for (uint32_t i = ranges->nr; i-- > 0;) {
        struct fgw_range *range = &ranges->items[i];
        if (!goes_with(worker, range, context)) {
            continue;
        }
        if (context && !range->pool && worker->calls->span.bytes != 0) {
            fgw_exports_forget(worker, range->address);
            fgw_span_free(worker, range->address, range->bytes);
        }
        fgw_memory_forget(worker, range, NULL);
    }
    if (context && worker->calls->span.bytes == 0) {
        fgw_pools_lose(worker, context);
    }
    if (!context) {
        free(worker->calls->pinned.items);
        free(ranges->items);
    }
}

bool fgw_memory_is_own_heap(const struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    const struct fgv_region *region = &worker->region;
    uint64_t base = (uint64_t)(uintptr_t)region->base;
    if (bytes == 0 || address < base || !fgv_region_in_heap(region, address - base, bytes)) {
        return false;
    }
    uint32_t index = fgw_ranges_after(&worker->calls->pinned, address);
    if (index != 0) {
        const struct fgw_range *range =
            &worker->calls->pinned.items[index - 1]; /* its pages were looked at when it was registered */
        if (address - range->address <= range->bytes && bytes <= range->bytes - (address - range->address)) {
            return true;
        }
    }
    return fgv_region_is_owned(region, worker->layout.index, address - base, bytes);
}

bool fgw_memory_is_in_arena(const struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    const uint64_t arena = (uint64_t)(uintptr_t)worker->region.base + worker->layout.arena.offset;
    return address < arena + worker->layout.arena.bytes && arena < address + bytes;
}

CUresult fgw_memory_register(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    if (!worker->driver.cuMemHostRegister_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return worker->driver.cuMemHostRegister_v2((void *)(uintptr_t)address, bytes,
                                               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

static void say_unpinned(struct fgw_worker *worker, CUresult result)
{
    if (!worker->calls->is_pinning_refused) {
        worker->calls->is_pinning_refused = true;
        fgw_log("the device library does not register host memory (CUDA error %d): copies are staged", (int)result);
    }
}

/* Those that are registered in no context, in the current one. */
static void register_all(struct fgw_worker *worker, struct fgw_ranges *ranges)
{
    for (uint32_t i = 0; i < ranges->nr; i++) {
        if (!ranges->items[i].context) {
            fgw_memory_register(worker, ranges->items[i].address, ranges->items[i].bytes);
            ranges->items[i].context = worker->current;
        }
    }
}

static void unregister_all(struct fgw_worker *worker, struct fgw_ranges *ranges, const struct fgw_context *context)
{
    for (uint32_t i = 0; i < ranges->nr; i++) {
        if (!context || ranges->items[i].context == context) {
            worker->driver.cuMemHostUnregister((void *)(uintptr_t)ranges->items[i].address);
            ranges->items[i].context = NULL;
        }
    }
}

void fgw_memory_pin(struct fgw_worker *worker)
{
    if (!worker->calls->is_pinned) {
        worker->calls->is_pinned = true;
        worker->calls->pinned_in = worker->current;
        uint64_t arena = (uint64_t)(uintptr_t)worker->region.base + worker->layout.arena.offset;
        uint64_t arena_bytes = (worker->layout.arena.bytes + FGV_PAGE_BYTES - 1) / FGV_PAGE_BYTES * FGV_PAGE_BYTES;
        CUresult result = fgw_memory_register(worker, arena, arena_bytes);
        if (result != CUDA_SUCCESS) {
            say_unpinned(worker, result);
        }
    }
    register_all(worker, &worker->calls->pinned);
    register_all(worker, &worker->calls->placed);
}

void fgw_memory_unpin(struct fgw_worker *worker, const struct fgw_context *context)
{
    const bool can = worker->driver.cuMemHostUnregister != NULL;
    if (worker->calls->is_pinned && (!context || worker->calls->pinned_in == context)) {
        worker->calls->is_pinned = false;
        if (can) {
            worker->driver.cuMemHostUnregister(worker->region.base + worker->layout.arena.offset);
        }
    }
    if (can) {
        unregister_all(worker, &worker->calls->pinned, context);
        unregister_all(worker, &worker->calls->placed, context);
    }
}

/* The region's table of events, whole. It is no more the client's than other programs' of its guest, which may write
 * there, too; nothing else outside of the heap is registered. */
static bool is_events(const struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    return address == (uint64_t)(uintptr_t)worker->region.events && bytes == FGV_EVENTS_BYTES;
}

CUresult fgw_serve_host_register(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_host_register *fixed = request->fixed;
    (void)reply;
    const bool is_table = is_events(worker, fixed->address, fixed->bytes);
    if (fixed->address % FGV_PAGE_BYTES != 0 || fixed->bytes % FGV_PAGE_BYTES != 0 ||
        !(is_table || fgw_memory_is_own_heap(worker, fixed->address, fixed->bytes))) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgw_memory_is_in_arena(worker, fixed->address, fixed->bytes) ||
        fgw_ranges_overlap(&worker->calls->pinned, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (!fgw_ranges_make_room(&worker->calls->pinned, FGW_MAX_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fgw_memory_register(worker, fixed->address, fixed->bytes);
    if (result == CUDA_ERROR_NOT_SUPPORTED && !is_table) { /* devices must write to the table */
        say_unpinned(worker, result);
        result = CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        fgw_ranges_insert(
            &worker->calls->pinned,
            (struct fgw_range){.address = fixed->address, .bytes = fixed->bytes, .context = worker->current});
    }
    return result;
}

CUresult fgw_serve_host_unregister(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_host_unregister *fixed = request->fixed;
    (void)reply;
    struct fgw_range *range = fgw_ranges_find(&worker->calls->pinned, fixed->address);
    if (!range) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    CUresult result = CUDA_SUCCESS;
    if (worker->driver.cuMemHostUnregister) {
        result = worker->driver.cuMemHostUnregister((void *)(uintptr_t)fixed->address);
    }
    if (result == CUDA_SUCCESS || worker->calls->is_pinning_refused) {
        fgw_ranges_erase(&worker->calls->pinned, range);
        result = CUDA_SUCCESS;
    }
    return result;
}
