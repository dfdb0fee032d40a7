/*
 * What the program says about its managed memory is checked, kept and given back (said.h). Where it will be used next
 * on the CPU a touch brings all of it (granules.h), and what is to stay with the CPU moves there (residence.h); nothing
 * else follows: what the device needs is sent when work for it is.
 */
#include "cuda_api/advice.h"

#include <stdbool.h>

#include "call/call.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "managed/granules.h"
#include "managed/residence.h"
#include "managed/said.h"
#include "memory/ranges.h"
#include "region/client.h"

static bool is_managed(uint64_t address, uint64_t bytes)
{
    struct fgv_range range;
    return bytes != 0 && fgv_memory_find(address, &range) && fgv_memory_is_managed(range.kind) &&
           bytes <= range.bytes - (address - range.address);
}

static void review(uint64_t address)
{
    struct fgv_entered entered;
    fgv_granules_enter(&entered);
    struct fgv_area *area = fgv_area_find(address);
    if (area) {
        fgv_residence_review(area);
    }
    fgv_granules_leave(&entered);
}

static CUresult advise(uint64_t address, uint64_t bytes, CUmem_advise what, CUmemLocation location)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_managed(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = fgv_said_advise(address, bytes, what, location);
    if (result == CUDA_SUCCESS && what != CU_MEM_ADVISE_SET_ACCESSED_BY && what != CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        review(address);
    }
    return result;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUdevice device)
{
    return advise(devPtr, count, what, fgv_advice_location(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUmemLocation location)
{
    return advise(devPtr, count, what, location);
}

static CUresult check_stream(CUstream stream)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return fgv_stream_wire(stream) == FGV_STREAM_INVALID ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static void want(uint64_t address, uint64_t bytes)
{
    struct fgv_entered entered;
    fgv_granules_enter(&entered);
    struct fgv_area *area = fgv_area_find(address);
    if (area) {
        fgv_granules_want(area, address - area->address, bytes);
    }
    fgv_granules_leave(&entered);
}

static CUresult prefetch(uint64_t address, uint64_t bytes, CUmemLocation location, CUstream stream)
{
    CUresult result = check_stream(stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_managed(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = fgv_said_prefetch(address, bytes, location);
    if (result == CUDA_SUCCESS && location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        want(address, bytes);
    }
    return result;
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return prefetch(devPtr, count, fgv_advice_location(dstDevice), hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, location, hStream);
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_managed(devPtr, count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return fgv_said_get(devPtr, count, attribute, data, dataSize);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    if (!data || !dataSizes || !attributes || numAttributes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++) {
        result = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    }
    return result;
}

/* To whom memory is attached is a promise of the program's that nothing here rests on. */
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    struct fgv_range range;
    CUresult result = check_stream(hStream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool is_flag = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    if (!is_flag || !fgv_memory_find(dptr, &range) || !fgv_memory_is_managed(range.kind) || range.address != dptr ||
        (length != 0 && length != range.bytes) ||
        (flags == CU_MEM_ATTACH_SINGLE && (!hStream || hStream == CU_STREAM_LEGACY))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* The place whose first range is the last one that is not behind the i-th. */
static CUmemLocation place_of(size_t i, const CUmemLocation *places, const size_t *firsts, size_t nr)
{
    size_t which = 0;
    while (which + 1 < nr && firsts[which + 1] <= i) {
        which++;
    }
    return places[which];
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream)
{
    if (!dptrs || !sizes || count == 0 || !prefetchLocs || !prefetchLocIdxs || numPrefetchLocs == 0 ||
        numPrefetchLocs > count || flags != 0 || prefetchLocIdxs[0] != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = prefetch(dptrs[i], sizes[i], place_of(i, prefetchLocs, prefetchLocIdxs, numPrefetchLocs), hStream);
    }
    return result;
}

/* Contents may go; they need not. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream)
{
    CUresult result = check_stream(hStream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!dptrs || !sizes || count == 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_managed(dptrs[i], sizes[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                           size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream)
{
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
