/*
 * Virtual memory of the client: addresses that it reserved, physical memory that it made, and which of it is mapped
 * where. All three are kept here, in private memory, and every request is held against them before the driver hears of
 * it: a client reaches no address that it did not reserve.
 *
 * Physical memory counts against the quota from its making until it is neither held by a handle nor mapped. The
 * driver's handle is kept as long, so that a mapping can always be asked for it.
 */
#include "calls/virtual_memory.h"

#include <stdlib.h>

#include "calls/exports.h"
#include "calls/memory.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "page/account.h"

struct fgw_physical *fgw_physical_find(struct fgw_worker *worker, uint64_t number)
{
    return fgw_handle_find(worker, FGV_HANDLE_ALLOCATION, number).object;
}

static CUmemAllocationProp properties(const struct fgw_worker *worker, uint32_t compression, uint32_t rdma)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}};
    property.allocFlags.compressionType = compression != 0;
    property.allocFlags.gpuDirectRDMACapable = rdma != 0;
    return property;
}

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
        fgw_ranges_overlap(&worker->calls->mapped, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = worker->driver.cuMemAddressFree(fixed->address, fixed->bytes);
    if (result == CUDA_SUCCESS) {
        worker->calls->reserved_bytes -= fixed->bytes;
        fgw_ranges_erase(&worker->calls->reserved, range);
    }
    return result;
}

static CUresult create(struct fgw_worker *worker, const struct fgv_request_cuMemCreate *fixed,
                       struct fgw_physical *physical)
{
    CUmemAllocationProp property = properties(worker, fixed->compression, fixed->rdma);
    property.requestedHandleTypes =
        fixed->is_shareable != 0 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    CUresult result = worker->driver.cuMemCreate(&physical->native, fixed->bytes, &property, 0);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_bind(worker, FGV_HANDLE_ALLOCATION, fixed->handle, NULL);
        if (result != CUDA_SUCCESS) {
            worker->driver.cuMemRelease(physical->native);
        }
    }
    return result;
}

CUresult fgw_serve_cuMemCreate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemCreate *fixed = request->fixed;
    (void)reply;
    if (!worker->driver.cuMemCreate || !worker->driver.cuMemRelease) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_worker_can_bind(worker, FGV_HANDLE_ALLOCATION, fixed->handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgw_memory_take(worker, fixed->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct fgw_physical *physical = calloc(1, sizeof(*physical));
    result = physical ? create(worker, fixed, physical) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(physical);
        fgw_quota_give(&worker->grantee, fixed->bytes);
        return result;
    }
    physical->bytes = fixed->bytes;
    physical->compression = fixed->compression;
    physical->rdma = fixed->rdma;
    physical->is_shareable = fixed->is_shareable;
    physical->nr_retained = 1;
    fgw_handle_hang(worker, FGV_HANDLE_ALLOCATION, fixed->handle, physical);
    return CUDA_SUCCESS;
}

CUresult fgw_physical_enter(struct fgw_worker *worker, uint64_t number, CUmemGenericAllocationHandle native,
                            uint64_t bytes)
{
    struct fgw_physical *physical = calloc(1, sizeof(*physical));
    CUresult result =
        physical ? fgw_worker_bind(worker, FGV_HANDLE_ALLOCATION, number, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(physical);
        return result;
    }
    *physical = (struct fgw_physical){.native = native, .bytes = bytes, .nr_retained = 1, .is_imported = true};
    fgw_handle_hang(worker, FGV_HANDLE_ALLOCATION, number, physical);
    return CUDA_SUCCESS;
}

void fgw_allocation_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_physical *physical = handle->object;
    fgw_exports_forget(worker, handle->number);
    fgw_quota_give(&worker->grantee, physical->bytes);
    free(physical);
}

static CUresult drop_if_unused(struct fgw_worker *worker, uint64_t number, const struct fgw_physical *physical)
{
    if (physical->nr_retained != 0 || physical->nr_mapped != 0) {
        return CUDA_SUCCESS;
    }
    CUresult result = worker->driver.cuMemRelease(physical->native);
    fgw_worker_unbind(worker, FGV_HANDLE_ALLOCATION, number);
    return result;
}

CUresult fgw_serve_cuMemRelease(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemRelease *fixed = request->fixed;
    (void)reply;
    struct fgw_physical *physical = fgw_physical_find(worker, fixed->handle);
    if (!physical || physical->nr_retained == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    physical->nr_retained--;
    return drop_if_unused(worker, fixed->handle, physical);
}

CUresult fgw_serve_cuMemMap(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemMap *fixed = request->fixed;
    (void)reply;
    struct fgw_physical *physical = fgw_physical_find(worker, fixed->handle);
    if (!physical || physical->nr_retained == 0 || fixed->bytes == 0 || fixed->offset > physical->bytes ||
        fixed->bytes > physical->bytes - fixed->offset ||
        !fgw_ranges_around(&worker->calls->reserved, fixed->address, fixed->bytes) ||
        fgw_ranges_overlap(&worker->calls->mapped, fixed->address, fixed->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->driver.cuMemMap) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!fgw_ranges_make_room(&worker->calls->mapped, FGW_MAX_DEVICE_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = worker->driver.cuMemMap(fixed->address, fixed->bytes, fixed->offset, physical->native, 0);
    if (result == CUDA_SUCCESS) {
        physical->nr_mapped++;
        fgw_ranges_insert(&worker->calls->mapped,
                          (struct fgw_range){.address = fixed->address, .bytes = fixed->bytes, .owner = fixed->handle});
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
    CUresult result = worker->driver.cuMemUnmap(fixed->address, fixed->bytes);
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < fixed->bytes;) {
        struct fgw_range *range = fgw_ranges_find(&worker->calls->mapped, fixed->address + done);
        struct fgw_physical *physical = fgw_physical_find(worker, range->owner);
        uint64_t number = range->owner;
        done += range->bytes;
        fgw_ranges_erase(&worker->calls->mapped, range);
        physical->nr_mapped--;
        drop_if_unused(worker, number, physical);
    }
    return result;
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
    return worker->driver.cuMemSetAccess ? worker->driver.cuMemSetAccess(fixed->address, fixed->bytes, &access, 1)
                                         : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult fgw_serve_cuMemGetAllocationGranularity(struct fgw_worker *worker, const struct fgw_request *request,
                                                 void *reply)
{
    const struct fgv_request_cuMemGetAllocationGranularity *fixed = request->fixed;
    struct fgv_reply_cuMemGetAllocationGranularity *answer = reply;
    size_t bytes = 0;
    if (!worker->driver.cuMemGetAllocationGranularity) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (fixed->option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUmemAllocationProp property = properties(worker, fixed->compression, fixed->rdma);
    CUresult result = worker->driver.cuMemGetAllocationGranularity(&bytes, &property,
                                                                   (CUmemAllocationGranularity_flags)fixed->option);
    answer->bytes = bytes;
    return result;
}

CUresult fgw_serve_cuMemRetainAllocationHandle(struct fgw_worker *worker, const struct fgw_request *request,
                                               void *reply)
{
    const struct fgv_request_cuMemRetainAllocationHandle *fixed = request->fixed;
    struct fgv_reply_cuMemRetainAllocationHandle *answer = reply;
    const struct fgw_range *range = fgw_ranges_around(&worker->calls->mapped, fixed->address, 1);
    if (!range) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgw_physical *physical = fgw_physical_find(worker, range->owner);
    if (physical->nr_retained == UINT32_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->nr_retained++;
    answer->handle = range->owner;
    return CUDA_SUCCESS;
}

void fgw_virtual_memory_drop(struct fgw_worker *worker)
{
    free(worker->calls->reserved.items);
    free(worker->calls->mapped.items);
    worker->calls->reserved = (struct fgw_ranges){0};
    worker->calls->mapped = (struct fgw_ranges){0};
}

/* ---- saved ---- */

struct saved_allocation {
    uint64_t bytes;
    uint32_t compression, rdma;
    uint32_t nr_retained; /* 0: its mappings alone hold it, and it goes with the last one */
    uint32_t is_shareable;
};

const char *fgw_allocation_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgw_physical *physical = handle->object;
    const struct saved_allocation saved = {.bytes = physical->bytes,
                                           .compression = physical->compression,
                                           .rdma = physical->rdma,
                                           .is_shareable = physical->is_shareable,
                                           .nr_retained = physical->nr_retained};
    struct fgw_key key;
    if (physical->is_imported || fgw_exports_find(worker, handle->number, &key)) {
        return "other programs may have it";
    }
    fgw_saver_put(saver, &saved, sizeof(saved));
    return NULL;
}

const char *fgw_allocation_restore(struct fgw_worker *worker, const struct fgw_saved_head *head,
                                   struct fgw_saved *saved)
{
    struct saved_allocation was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    const struct fgv_request_cuMemCreate create = {.handle = head->number,
                                                   .bytes = was.bytes,
                                                   .compression = was.compression,
                                                   .rdma = was.rdma,
                                                   .is_shareable = was.is_shareable};
    const char *why =
        fgw_saved_serve(worker, saved, &(struct fgw_saved_call){.call = FGV_CALL_cuMemCreate, .fixed = &create});
    if (!why) {
        fgw_physical_find(worker, head->number)->nr_retained = was.nr_retained;
    }
    return why;
}
