/*
 * See span.h. An extent is one handle of the driver's, mapped once. An allocation has one, or several where it is
 * large: a driver takes as long for a handle as for memory of its own, and a handle is what is moved at a time.
 *
 * Wrong when: an extent cannot be unmapped, as the driver says after a fault. Its addresses stay taken then.
 */
#include "calls/span.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/count.h"
#include "base/log.h"
#include "calls/swap.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "page/layout.h"
#include "page/room.h"
#include "turn/turn.h"

#define MAX_EXTENTS FGW_MAX_DEVICE_RANGES
/* Of one extent; beyond, a handle costs what its parts do. Where memory may have to make room it does so in smaller
 * parts, which cost a hundredth of what it takes to copy them (docs/lab/memory.md). */
#define MOST_BYTES         (UINT64_C(1) << 30)
#define MOVABLE_MOST_BYTES (UINT64_C(256) << 20)

static struct fgv_driver real; /* the driver's own calls, of the one device library of this process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fgw_span_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fgw_span_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void fgw_span_init(const struct fgv_driver *driver)
{
    real = *driver;
}

void fgw_worker_set_span(struct fgw_worker *worker, bool is_wanted)
{
    worker->calls->span.is_wanted = is_wanted;
}

/* ---- the span ---- */

static bool has_calls(void)
{
    return real.cuMemAddressReserve && real.cuMemAddressFree && real.cuMemCreate && real.cuMemRelease &&
           real.cuMemMap && real.cuMemUnmap && real.cuMemSetAccess && real.cuMemGetAllocationGranularity;
}

static CUmemAllocationProp plain(const struct fgw_worker *worker)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}};
}

static bool fits_granularity(const struct fgw_worker *worker)
{
    const CUmemAllocationProp property = plain(worker);
    size_t least_bytes = 0;
    CUresult result = real.cuMemGetAllocationGranularity(&least_bytes, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return result == CUDA_SUCCESS && least_bytes != 0 && FGW_SPAN_STEP_BYTES % least_bytes == 0;
}

CUresult fgw_serve_span_open(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_span_open *fixed = request->fixed;
    struct fgw_span *span = &worker->calls->span;
    CUdeviceptr placed = 0;
    (void)reply;
    if (!span->is_wanted || !has_calls() || !fits_granularity(worker)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (span->bytes != 0 || fixed->address == 0 || fixed->bytes == 0 || fixed->address % FGW_SPAN_STEP_BYTES != 0 ||
        fixed->bytes % FGW_SPAN_STEP_BYTES != 0 || fixed->bytes > FGW_SPAN_MOST_BYTES ||
        fixed->address > UINT64_MAX - fixed->bytes) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = real.cuMemAddressReserve(&placed, fixed->bytes, 0, fixed->address, 0);
    if (result != CUDA_SUCCESS) {
        return CUDA_ERROR_MAP_FAILED;
    }
    if (placed != fixed->address) {
        real.cuMemAddressFree(placed, fixed->bytes);
        return CUDA_ERROR_MAP_FAILED;
    }
    span->address = placed;
    span->bytes = fixed->bytes;
    return CUDA_SUCCESS;
}

/* Finds where among the taken addresses there is a hole; their number, or UINT32_MAX. */
static uint32_t find_hole(const struct fgw_span *span, uint64_t bytes, uint64_t *address)
{
    uint64_t end = span->address;
    for (uint32_t i = 0; i <= span->taken.nr; i++) {
        const uint64_t next = i < span->taken.nr ? span->taken.items[i].address : span->address + span->bytes;
        if (next - end >= bytes) {
            *address = end;
            return i;
        }
        end = i < span->taken.nr ? next + span->taken.items[i].bytes : next;
    }
    return UINT32_MAX;
}

bool fgw_span_take(struct fgw_worker *worker, uint64_t bytes, uint64_t *address)
{
    struct fgw_span *span = &worker->calls->span;
    if (bytes == 0 || bytes > span->bytes || !fgw_ranges_make_room(&span->taken, MAX_EXTENTS) ||
        find_hole(span, bytes, address) == UINT32_MAX) {
        return false;
    }
    fgw_ranges_insert(&span->taken, (struct fgw_range){.address = *address, .bytes = bytes});
    return true;
}

void fgw_span_give(struct fgw_worker *worker, uint64_t address)
{
    struct fgw_span *span = &worker->calls->span;
    struct fgw_range *range = fgw_ranges_find(&span->taken, address);
    if (range && !fgw_ranges_overlap(&span->extents, address, range->bytes)) {
        fgw_ranges_erase(&span->taken, range);
    }
}

/* ---- extents ---- */

/* Whatever holds now: an earlier daemon may have let programs allocate more, or less. */
uint64_t fgw_span_extent_bytes(uint64_t bytes, uint32_t nr_extents)
{
    const uint64_t most_bytes[] = {MOST_BYTES, MOVABLE_MOST_BYTES};
    for (size_t i = 0; i < sizeof(most_bytes) / sizeof(most_bytes[0]); i++) {
        if (bytes / most_bytes[i] + (bytes % most_bytes[i] != 0) == nr_extents) {
            return most_bytes[i];
        }
    }
    return 0;
}

static CUresult bring(struct fgw_worker *worker, struct fgw_range *extent)
{
    const CUmemAllocationProp property = plain(worker);
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle native;
    CUresult result = real.cuMemCreate(&native, extent->bytes, &property, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = real.cuMemMap(extent->address, extent->bytes, 0, native, 0);
    if (result != CUDA_SUCCESS) {
        real.cuMemRelease(native);
        return result;
    }
    result = real.cuMemSetAccess(extent->address, extent->bytes, &access, 1);
    if (result != CUDA_SUCCESS) {
        real.cuMemUnmap(extent->address, extent->bytes);
        real.cuMemRelease(native);
        return result;
    }
    extent->owner = native;
    return CUDA_SUCCESS;
}

CUresult fgw_span_bring(struct fgw_worker *worker, struct fgw_range *extent)
{
    fgw_span_lock();
    const CUresult result = bring(worker, extent);
    fgw_span_unlock();
    return result;
}

static CUresult take_off(struct fgw_worker *worker, struct fgw_range *extent)
{
    CUresult result = real.cuMemUnmap(extent->address, extent->bytes);
    if (result == CUDA_SUCCESS) {
        real.cuMemRelease(extent->owner);
        extent->owner = 0;
        fgw_room_leave(&worker->grantee, extent->bytes);
    }
    return result;
}

CUresult fgw_span_take_off(struct fgw_worker *worker, struct fgw_range *extent)
{
    fgw_span_lock();
    const CUresult result = take_off(worker, extent);
    fgw_span_unlock();
    return result;
}

/* One for which there is no room now comes when there is. */
static CUresult make_extent_locked(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    struct fgw_span *span = &worker->calls->span;
    struct fgw_range extent = {.address = address, .bytes = bytes};
    if (!fgw_ranges_make_room(&span->extents, MAX_EXTENTS)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (fgw_room_claim(&worker->grantee, bytes)) {
        const CUresult result = bring(worker, &extent);
        if (result != CUDA_SUCCESS) {
            fgw_room_leave(&worker->grantee, bytes);
        }
        if (result != CUDA_SUCCESS && !(result == CUDA_ERROR_OUT_OF_MEMORY && fgw_room_is_short(&worker->grantee))) {
            return result;
        }
    }
    if (extent.owner == 0) {
        span->nr_out++;
        fgw_turn_set_displaced(worker, true); /* at once: what comes next may use it */
    }
    fgw_ranges_insert(&span->extents, extent);
    return CUDA_SUCCESS;
}

static CUresult make_extent(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    fgw_span_lock();
    const CUresult result = make_extent_locked(worker, address, bytes);
    fgw_span_unlock();
    return result;
}

CUresult fgw_span_fill(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    const uint64_t most_bytes = fgw_room_is_short(&worker->grantee) ? MOVABLE_MOST_BYTES : MOST_BYTES;
    uint64_t filled_bytes = 0, dropped_bytes = 0;
    CUresult result = CUDA_SUCCESS;
    if (!fgw_room_allocate(&worker->grantee, bytes, 0)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    while (result == CUDA_SUCCESS && filled_bytes < bytes) {
        const uint64_t left_bytes = bytes - filled_bytes;
        const uint64_t extent_bytes = left_bytes < most_bytes ? left_bytes : most_bytes;
        result = make_extent(worker, address + filled_bytes, extent_bytes);
        filled_bytes += result == CUDA_SUCCESS ? extent_bytes : 0;
    }
    if (result != CUDA_SUCCESS) {
        fgw_room_deallocate(&worker->grantee, bytes - filled_bytes);
        if (filled_bytes != 0) {
            fgw_span_empty(worker, address, filled_bytes, &dropped_bytes);
        }
    }
    return result;
}

static CUresult empty(struct fgw_worker *worker, uint64_t address, uint64_t bytes, uint64_t *dropped_bytes)
{
    struct fgw_span *span = &worker->calls->span;
    struct fgw_ranges *extents = &span->extents;
    CUresult result = CUDA_SUCCESS;
    const uint32_t first = fgw_ranges_after(extents, address - 1);
    uint32_t end = first;
    while (end < extents->nr && extents->items[end].address - address < bytes) {
        struct fgw_range *extent = &extents->items[end];
        if (extent->owner != 0) {
            result = take_off(worker, extent);
        } else {
            span->nr_out--;
        }
        if (result != CUDA_SUCCESS) {
            break;
        }
        fgw_swap_forget(worker, extent->address);
        fgw_room_deallocate(&worker->grantee, extent->bytes);
        *dropped_bytes += extent->bytes;
        end++;
    }
    fgw_ranges_erase_some(extents, first, end - first);
    return result;
}

CUresult fgw_span_empty(struct fgw_worker *worker, uint64_t address, uint64_t bytes, uint64_t *dropped_bytes)
{
    fgw_span_lock();
    const CUresult result = empty(worker, address, bytes, dropped_bytes);
    fgw_span_unlock();
    return result;
}

bool fgw_span_last_whole(const struct fgw_worker *worker, uint64_t address, uint64_t bytes, struct fgw_range *extent)
{
    const struct fgw_ranges *extents = &worker->calls->span.extents;
    for (uint32_t i = fgw_ranges_after(extents, address + bytes - 1); i-- > 0;) {
        *extent = extents->items[i];
        if (extent->address < address) {
            return false;
        }
        if (extent->address + extent->bytes <= address + bytes) {
            return true;
        }
    }
    return false;
}

bool fgw_span_is_out(struct fgw_worker *worker, uint64_t address)
{
    const struct fgw_range *extent = fgw_ranges_around(&worker->calls->span.extents, address, 1);
    return extent && extent->owner == 0;
}

/* ---- the client's own memory ---- */

bool fgw_span_may_move(const struct fgw_worker *worker, uint64_t bytes)
{
    return fgw_room_is_short(&worker->grantee) && has_calls() && bytes != 0 && bytes % FGW_SPAN_STEP_BYTES == 0 &&
           bytes <= MOVABLE_MOST_BYTES;
}

CUmemGenericAllocationHandle fgw_span_disown(struct fgw_worker *worker, uint64_t address)
{
    struct fgw_ranges *extents = &worker->calls->span.extents;
    struct fgw_range *extent = fgw_ranges_find(extents, address);
    const CUmemGenericAllocationHandle native = extent->owner;
    if (native == 0) {
        return 0;
    }
    fgw_swap_forget(worker, address);
    fgw_room_stay(&worker->grantee, extent->bytes);
    fgw_span_lock();
    fgw_ranges_erase(extents, extent);
    fgw_span_unlock();
    return native;
}

/* ---- allocations ---- */

static CUresult allocate_in_span(struct fgw_worker *worker, uint64_t bytes, uint64_t *address)
{
    if (bytes > worker->calls->span.bytes || !fgw_span_take(worker, fgw_span_round(bytes), address)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fgw_span_fill(worker, *address, fgw_span_round(bytes));
    if (result != CUDA_SUCCESS) {
        fgw_span_give(worker, *address);
    }
    return result;
}

CUresult fgw_span_allocate(struct fgw_worker *worker, uint64_t bytes, uint64_t *address)
{
    CUdeviceptr placed = 0;
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (worker->calls->span.bytes != 0) {
        return allocate_in_span(worker, bytes, address);
    }
    worker->calls->span.is_wanted = false; /* what is not in it now would be taken for what is */
    CUresult result = real.cuMemAlloc_v2 ? real.cuMemAlloc_v2(&placed, bytes) : CUDA_ERROR_NOT_SUPPORTED;
    *address = placed;
    return result;
}

CUresult fgw_span_free(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    uint64_t dropped_bytes = 0;
    if (worker->calls->span.bytes == 0) {
        return real.cuMemFree_v2 ? real.cuMemFree_v2(address) : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_span_empty(worker, address, fgw_span_round(bytes), &dropped_bytes);
    fgw_span_give(worker, address);
    return result;
}

void fgw_span_drop(struct fgw_worker *worker)
{
    struct fgw_span *span = &worker->calls->span;
    free(span->taken.items);
    free(span->extents.items);
    *span = (struct fgw_span){0};
}
