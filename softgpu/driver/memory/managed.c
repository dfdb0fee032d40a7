/*
 * Managed memory. All memory of this device is memory of the process, so managed memory is memory like any other; what
 * a program says about where it should lie is kept and given back.
 */
#include "cuda_api/advice.h"
#include "cuda_api/prototypes.h"
#include "kernel_abi.h"
#include "memory/memory_map.h"
#include "stream/stream.h"

static struct fgv_advice advice;

static void deleted(struct sgp_allocation *allocation)
{
    fgv_advice_forget(&advice, allocation->start, allocation->mapped_bytes);
}

static const struct sgp_memory_owner owner = {.deleted = deleted};

SGP_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct CUctx_st *context;
    void *address = NULL;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_memory_new(context, bytesize, SGP_MEMORY_MANAGED, &address);
    if (!result) {
        struct sgp_allocation *allocation = sgp_memory_find((uintptr_t)address);

        allocation->owner = &owner;
        allocation->flags = flags;
        *dptr = (uintptr_t)address;
    }
    return sgp_leave(result);
}

uint64_t sgp_managed_bytes(const struct sgp_allocation *allocation, CUdeviceptr address)
{
    const uint64_t place = address - allocation->start;

    for (uint32_t i = 0; allocation->code && i < allocation->code->nr_globals; i++) {
        const struct sgp_global *variable = &allocation->code->globals[i];

        if (place - variable->offset_bytes < variable->size_bytes) {
            return variable->is_managed ? variable->offset_bytes + variable->size_bytes - place : 0;
        }
    }
    return allocation->kind == SGP_MEMORY_MANAGED && place < allocation->bytes ? allocation->bytes - place : 0;
}

static bool is_managed(CUdeviceptr address, uint64_t bytes)
{
    const struct sgp_allocation *allocation = sgp_memory_find(address);

    return allocation && bytes && bytes <= sgp_managed_bytes(allocation, address);
}

/* The same of what something is said of now; it is forgotten with the memory, a variable with its module. */
static bool is_told_of(CUdeviceptr address, uint64_t bytes)
{
    const bool is_ours = is_managed(address, bytes);

    if (is_ours) {
        sgp_memory_find(address)->owner = &owner;
    }
    return is_ours;
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise what, CUmemLocation location)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!is_told_of(address, bytes)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(fgv_advice_set(&advice, address, bytes, what, location, sgp_nr_devices));
}

SGP_EXPORT CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUdevice device)
{
    return advise(devPtr, count, what, fgv_advice_location(device));
}

SGP_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUmemLocation location)
{
    return advise(devPtr, count, what, location);
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(handle, &stream);

    if (result) {
        return result;
    }
    if (!is_told_of(address, bytes)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(fgv_advice_prefetched(&advice, address, bytes, location, sgp_nr_devices));
}

SGP_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return prefetch(devPtr, count, fgv_advice_location(dstDevice), hStream);
}

SGP_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                          CUstream hStream)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, location, hStream);
}

SGP_EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                           CUdeviceptr devPtr, size_t count)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!is_managed(devPtr, count)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(fgv_advice_get(&advice, devPtr, count, attribute, data, dataSize));
}

SGP_EXPORT CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                            size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    CUresult result = data && dataSizes && attributes && numAttributes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < numAttributes && !result; i++) {
        result = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    }
    return result;
}

/* Memory that belongs to one stream, or to the host, is a promise of the program's that nothing here rests on. */
SGP_EXPORT CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    struct CUstream_st *stream;
    const struct sgp_allocation *allocation;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    allocation = sgp_memory_find(dptr);
    if (!allocation || allocation->kind != SGP_MEMORY_MANAGED || allocation->start != dptr ||
        (length && length != allocation->bytes) ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) ||
        (flags == CU_MEM_ATTACH_SINGLE && stream == stream->object.context->legacy)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(CUDA_SUCCESS);
}

/* Where the i-th range goes: the place whose first range is the last one that is not behind it. */
static CUresult place_of(size_t i, const CUmemLocation *places, const size_t *firsts, size_t nr, CUmemLocation *place)
{
    size_t which = 0;

    while (which + 1 < nr && firsts[which + 1] <= i) {
        which++;
    }
    *place = places[which];
    return firsts[0] == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SGP_EXPORT CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                            CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                            size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
    CUresult result = CUDA_SUCCESS;
    CUmemLocation place;

    if (!dptrs || !sizes || !count || !prefetchLocs || !prefetchLocIdxs || !numPrefetchLocs ||
        numPrefetchLocs > count || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count && !result; i++) {
        result = place_of(i, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, &place);
        if (!result) {
            result = prefetch(dptrs[i], sizes[i], place, hStream);
        }
    }
    return result;
}

/* Contents may go; they need not. */
SGP_EXPORT CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                           CUstream hStream)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    if (!dptrs || !sizes || !count || flags) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_managed(dptrs[i], sizes[i])) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                                      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                                      size_t numPrefetchLocs, unsigned long long flags,
                                                      CUstream hStream)
{
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
