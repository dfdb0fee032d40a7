/*
 * Physical memory of the client's own, by its number. It counts against the quota from its making until it is neither
 * held by a handle nor mapped. The driver's handle is kept as long, so that a mapping can always be asked for it.
 *
 * Where more may be allocated than there is room for, it is promised at first, without memory. What is mapped whole
 * then becomes an extent of the span's at the client's address, which swap.c brings out as any other: whether it is on
 * the device, and its handle, that table tells alone. What the driver's own handle is needed for takes it out of there
 * again, for good: a second mapping, less access than all, a handle that outlives its mapping.
 *
 * Wrong when: memory that may be shared was an extent, and is exported when it is none any more: the driver has no
 * descriptor of it. Or when others allocate what was promised: mapping it fails.
 */
#include "calls/physical.h"

#include <stdlib.h>

#include "calls/exports.h"
#include "calls/lack.h"
#include "calls/memory.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "page/account.h"
#include "page/room.h"
#include "page/shares.h"

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

static CUresult make(struct fgw_worker *worker, struct fgw_physical *physical)
{
    CUmemAllocationProp property = properties(worker, physical->compression, physical->rdma);
    property.requestedHandleTypes =
        physical->is_shareable != 0 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    if (!fgw_room_place(&worker->grantee, physical->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = worker->driver.cuMemCreate(&physical->native, physical->bytes, &property, 0);
    if (result != CUDA_SUCCESS) {
        fgw_room_unplace(&worker->grantee, physical->bytes);
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? fgw_lack_of(worker, physical->bytes) : result;
}

/* False: it is more than there may be. Others may allocate as much before it is mapped, which fails then. */
static bool promise(struct fgw_worker *worker, uint64_t bytes)
{
    uint64_t free_bytes, most_bytes;
    if (fgw_room_free(&worker->grantee, &free_bytes, &most_bytes) &&
        (free_bytes < worker->calls->promised_bytes || free_bytes - worker->calls->promised_bytes < bytes)) {
        return false;
    }
    worker->calls->promised_bytes += bytes;
    return true;
}

/* No longer has anything: neither memory nor a promise. */
static CUresult let_go(struct fgw_worker *worker, const struct fgw_physical *physical)
{
    if (physical->native != 0) {
        fgw_share_leave(&worker->grantee, physical->share);
        fgw_room_unplace(&worker->grantee, physical->bytes);
        return worker->driver.cuMemRelease(physical->native);
    }
    worker->calls->promised_bytes -= physical->bytes;
    return CUDA_SUCCESS;
}

static CUresult make_or_promise(struct fgw_worker *worker, struct fgw_physical *physical)
{
    const bool may_move =
        physical->compression == 0 && physical->rdma == 0 && fgw_span_may_move(worker, physical->bytes);
    return !may_move                          ? make(worker, physical)
           : promise(worker, physical->bytes) ? CUDA_SUCCESS
                                              : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(struct fgw_worker *worker, uint64_t number, struct fgw_physical *physical)
{
    CUresult result = make_or_promise(worker, physical);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker);
        result = make_or_promise(worker, physical);
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_bind(worker, FGV_HANDLE_ALLOCATION, number, NULL);
        if (result != CUDA_SUCCESS) {
            let_go(worker, physical);
        }
    }
    return result;
}

bool fgw_physical_is_promised(const struct fgw_physical *physical)
{
    return physical->native == 0 && physical->extent == 0;
}

CUresult fgw_physical_place(struct fgw_worker *worker, struct fgw_physical *physical, uint64_t address)
{
    CUresult result = fgw_span_fill(worker, address, physical->bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker);
        result = fgw_span_fill(worker, address, physical->bytes);
    }
    if (result == CUDA_SUCCESS) {
        physical->extent = address;
        worker->calls->promised_bytes -= physical->bytes;
    }
    return result;
}

CUresult fgw_physical_hold(struct fgw_worker *worker, struct fgw_physical *physical)
{
    if (physical->extent != 0) {
        physical->native = fgw_span_disown(worker, physical->extent);
        if (physical->native == 0) {
            return CUDA_ERROR_NOT_READY;
        }
        physical->extent = 0;
        return CUDA_SUCCESS;
    }
    if (physical->native != 0) {
        return CUDA_SUCCESS;
    }
    const CUresult result = make(worker, physical);
    worker->calls->promised_bytes -= result == CUDA_SUCCESS ? physical->bytes : 0;
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
    if (physical) {
        *physical = (struct fgw_physical){.bytes = fixed->bytes,
                                          .compression = fixed->compression,
                                          .rdma = fixed->rdma,
                                          .is_shareable = fixed->is_shareable,
                                          .nr_retained = 1};
    }
    result = physical ? create(worker, fixed->handle, physical) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(physical);
        fgw_quota_give(&worker->grantee, fixed->bytes);
        return result;
    }
    fgw_handle_hang(worker, FGV_HANDLE_ALLOCATION, fixed->handle, physical);
    return CUDA_SUCCESS;
}

CUresult fgw_physical_enter(struct fgw_worker *worker, uint64_t number, CUmemGenericAllocationHandle native,
                            uint64_t bytes, uint64_t share)
{
    struct fgw_physical *physical = calloc(1, sizeof(*physical));
    CUresult result =
        physical ? fgw_worker_bind(worker, FGV_HANDLE_ALLOCATION, number, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(physical);
        return result;
    }
    *physical =
        (struct fgw_physical){.native = native, .bytes = bytes, .nr_retained = 1, .is_imported = true, .share = share};
    fgw_room_count_placed(&worker->grantee, bytes);
    fgw_share_join(&worker->grantee, share, bytes);
    fgw_handle_hang(worker, FGV_HANDLE_ALLOCATION, number, physical);
    return CUDA_SUCCESS;
}

void fgw_allocation_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_physical *physical = handle->object;
    fgw_quota_give(&worker->grantee, physical->bytes);
    free(physical);
}

CUresult fgw_physical_drop_if_unused(struct fgw_worker *worker, uint64_t number, const struct fgw_physical *physical)
{
    if (physical->nr_retained != 0 || physical->nr_mapped != 0) {
        return CUDA_SUCCESS;
    }
    fgw_exports_forget(worker, number);
    CUresult result = let_go(worker, physical);
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
    return fgw_physical_drop_if_unused(worker, fixed->handle, physical);
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
