/*
 * Virtual memory of the client: addresses that it reserved, and which physical memory (physical.c) is mapped where.
 * Both are kept here, in private memory, and every request is held against them before the driver hears of it: a client
 * reaches no address that it did not reserve.
 */
#include "calls/virtual_memory.h"

#include <stdlib.h>

#include "calls/physical.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "turn/yield.h"

CUresult fgw_serve_cuMemAddressReserve(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemAddressReserve *fixed = request->fixed;
    struct fgv_reply_cuMemAddressReserve *answer = reply;
    CUdeviceptr address = 0;
    if (!worker->driver.cuMemAddressReserve) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (fixed->bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fixed->bytes > FGW_ADDRESS_BYTES - worker->calls->reserved_bytes ||
        !fgw_ranges_make_room(&worker->calls->reserved, FGW_MAX_RESERVATIONS)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = worker->driver.cuMemAddressReserve(&address, fixed->bytes, fixed->alignment, fixed->address, 0);
    if (result == CUDA_SUCCESS && fgw_told_hides(worker, address, fixed->bytes)) {
        worker->driver.cuMemAddressFree(address, fixed->bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        fgw_ranges_insert(&worker->calls->reserved, (struct fgw_range){.address = address, .bytes = fixed->bytes});
        worker->calls->reserved_bytes += fixed->bytes;
        answer->address = address;
    }
    return result;
}

CUresult fgw_serve_cuMemAddressFree(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemAddressFree *fixed = request->fixed;
    (void)reply;
    struct fgw_range *range = fgw_ranges_find(&worker->calls->reserved, fixed->address);
    if (!range || range->bytes != fixed->bytes ||
        fgw_ranges_overlap(&worker->calls->mapped, fixed->address, fixed->bytes) ||
        fgw_ranges_overlap(&worker->calls->placed, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = worker->driver.cuMemAddressFree(fixed->address, fixed->bytes);
    if (result == CUDA_SUCCESS) {
        worker->calls->reserved_bytes -= fixed->bytes;
        fgw_ranges_erase(&worker->calls->reserved, range);
    }
    return result;
}

/* Of all that is mapped in these bytes, whole mappings side by side, the driver's handles: no extent is left there. */
static CUresult hold_mapped(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < bytes;) {
        const struct fgw_range *range = fgw_ranges_find(&worker->calls->mapped, address + done);
        result = fgw_physical_hold(worker, fgw_physical_find(worker, range->owner));
        done += range->bytes;
    }
    return result;
}

CUresult fgw_mapping_enter(struct fgw_worker *worker, const struct fgw_range *range, uint64_t offset)
{
    struct fgw_physical *physical = fgw_physical_find(worker, range->owner);
    if (!fgw_ranges_make_room(&worker->calls->mapped, FGW_MAX_DEVICE_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const bool is_whole = offset == 0 && range->bytes == physical->bytes;
    CUresult result;
    if (is_whole && fgw_physical_is_promised(physical)) {
        /* Said here, as the driver may be asked later, when there is room. */
        result = range->address % FGW_SPAN_STEP_BYTES == 0 ? fgw_physical_place(worker, physical, range->address)
                                                           : CUDA_ERROR_INVALID_VALUE;
    } else {
        result = fgw_physical_hold(worker, physical);
        result = result == CUDA_SUCCESS
                     ? worker->driver.cuMemMap(range->address, range->bytes, offset, physical->native, 0)
                     : result;
    }
    if (result == CUDA_SUCCESS) {
        physical->nr_mapped++;
        fgw_ranges_insert(&worker->calls->mapped, *range);
    }
    return result;
}

CUresult fgw_serve_cuMemMap(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemMap *fixed = request->fixed;
    (void)reply;
    const struct fgw_physical *physical = fgw_physical_find(worker, fixed->handle);
    if (!physical || physical->nr_retained == 0 || fixed->bytes == 0 || fixed->offset > physical->bytes ||
        fixed->bytes > physical->bytes - fixed->offset ||
        !fgw_ranges_around(&worker->calls->reserved, fixed->address, fixed->bytes) ||
        fgw_ranges_overlap(&worker->calls->mapped, fixed->address, fixed->bytes) ||
        fgw_ranges_overlap(&worker->calls->placed, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->driver.cuMemMap) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const struct fgw_range range = {.address = fixed->address, .bytes = fixed->bytes, .owner = fixed->handle};
    return fgw_mapping_enter(worker, &range, fixed->offset);
}

CUresult fgw_mapping_leave(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    CUresult result = hold_mapped(worker, address, bytes);
    if (result == CUDA_SUCCESS) {
        fgw_yield_forget(worker, address, bytes);
        result = worker->driver.cuMemUnmap(address, bytes);
    }
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < bytes;) {
        struct fgw_range *range = fgw_ranges_find(&worker->calls->mapped, address + done);
        struct fgw_physical *physical = fgw_physical_find(worker, range->owner);
        uint64_t number = range->owner;
        done += range->bytes;
        fgw_ranges_erase(&worker->calls->mapped, range);
        physical->nr_mapped--;
        fgw_physical_drop_if_unused(worker, number, physical);
    }
    return result;
}

CUresult fgw_serve_cuMemUnmap(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemUnmap *fixed = request->fixed;
    (void)reply;
    if (fixed->bytes == 0 || !fgw_ranges_fill(&worker->calls->mapped, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return fgw_mapping_leave(worker, fixed->address, fixed->bytes);
}

CUresult fgw_serve_cuMemSetAccess(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemSetAccess *fixed = request->fixed;
    (void)reply;
    const bool is_access = fixed->access == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                           fixed->access == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                           fixed->access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!is_access || fixed->bytes == 0 || !fgw_ranges_fill(&worker->calls->mapped, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                                    .flags = (CUmemAccess_flags)fixed->access};
    if (!worker->driver.cuMemSetAccess) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    if (fixed->access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) { /* which is what extents have */
        result = hold_mapped(worker, fixed->address, fixed->bytes);
    }
    return result == CUDA_SUCCESS ? worker->driver.cuMemSetAccess(fixed->address, fixed->bytes, &access, 1) : result;
}

void fgw_virtual_memory_drop(struct fgw_worker *worker)
{
    free(worker->calls->reserved.items);
    free(worker->calls->mapped.items);
    free(worker->calls->placed.items);
    worker->calls->placed = (struct fgw_ranges){0};
    worker->calls->reserved = (struct fgw_ranges){0};
    worker->calls->mapped = (struct fgw_ranges){0};
}
