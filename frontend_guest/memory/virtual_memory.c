/*
 * Physical memory (physical.c) mapped at addresses that were reserved (reservation.c). Both are the worker's affair;
 * here is what is needed to answer questions about mappings.
 */
#include "memory/virtual_memory.h"

#include "base/handles.h"
#include "call/call.h"
#include "call/device.h"
#include "cuda_api/prototypes.h"
#include "memory/physical.h"
#include "memory/ranges.h"
#include "region/client.h"

static CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle)
{
    struct fgv_call call;
    struct fgv_request_cuMemMap *request = fgv_call_begin_anywhere(&call, FGV_CALL_cuMemMap, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemMap){.address = address, .bytes = bytes, .offset = offset, .handle = handle};
    return fgv_call_wait(&call, NULL, 0);
}

static CUresult unmap(uint64_t address, uint64_t bytes)
{
    struct fgv_call call;
    struct fgv_request_cuMemUnmap *request = fgv_call_begin_anywhere(&call, FGV_CALL_cuMemUnmap, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemUnmap){.address = address, .bytes = bytes};
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CUmemAllocationProp properties;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0 || !fgv_physical_has(handle, &properties)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = map(ptr, size, offset, handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgv_physical_mapped(handle);
    fgv_memory_enter(ptr, size, FGV_MEMORY_MAPPED, CU_MEM_ACCESS_FLAGS_PROT_NONE, handle);
    return CUDA_SUCCESS;
}

static void unmapped(const struct fgv_range *range)
{
    fgv_physical_unmapped(range->owner);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = unmap(ptr, size);
    if (result == CUDA_SUCCESS) {
        fgv_memory_unmap(ptr, size, unmapped);
    }
    return result;
}

static CUresult set_access(uint64_t address, uint64_t bytes, CUmemAccess_flags access)
{
    struct fgv_call call;
    struct fgv_request_cuMemSetAccess *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemSetAccess, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemSetAccess){.address = address, .bytes = bytes, .access = access};
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!desc || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            fgv_device_check(desc[i].location.id) != CUDA_SUCCESS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        result = set_access(ptr, size, desc[i].flags);
        if (result == CUDA_SUCCESS) {
            fgv_memory_set_access(ptr, size, desc[i].flags);
        }
    }
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    struct fgv_range range;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        fgv_device_check(location->id) != CUDA_SUCCESS || !fgv_memory_find(ptr, &range) ||
        range.kind != FGV_MEMORY_MAPPED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = range.flags;
    return CUDA_SUCCESS;
}

/* ---- for this library's own use: the program neither sees the number nor finds the mapping ---- */

CUresult fgv_mapping_take_memory(struct fgv_mapping *mapping)
{
    const CUmemAllocationProp plain = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUresult result = fgv_handle_new(FGV_HANDLE_ALLOCATION, &mapping->handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fgv_physical_create(mapping->handle, mapping->bytes, &plain);
    if (result != CUDA_SUCCESS) {
        fgv_handle_drop(FGV_HANDLE_ALLOCATION, mapping->handle);
        mapping->handle = 0;
    }
    return result;
}

void fgv_mapping_give_memory(struct fgv_mapping *mapping)
{
    fgv_physical_release(mapping->handle);
    fgv_handle_drop(FGV_HANDLE_ALLOCATION, mapping->handle);
    mapping->handle = 0;
}

CUresult fgv_mapping_make(struct fgv_mapping *mapping)
{
    CUdeviceptr address;
    CUresult result = cuMemAddressReserve(&address, mapping->bytes, FGV_MAPPING_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    mapping->address = address;
    result = fgv_mapping_take_memory(mapping);
    if (result != CUDA_SUCCESS) {
        cuMemAddressFree(address, mapping->bytes);
        return result;
    }
    result = map(address, mapping->bytes, 0, mapping->handle);
    const bool is_mapped = result == CUDA_SUCCESS;
    if (is_mapped) {
        result = set_access(address, mapping->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result != CUDA_SUCCESS) {
        if (is_mapped) {
            unmap(address, mapping->bytes);
        }
        fgv_mapping_give_memory(mapping);
        cuMemAddressFree(address, mapping->bytes);
    }
    return result;
}

void fgv_mapping_drop(struct fgv_mapping *mapping)
{
    if (mapping->handle != 0) {
        unmap(mapping->address, mapping->bytes);
        fgv_mapping_give_memory(mapping);
    }
    cuMemAddressFree(mapping->address, mapping->bytes);
}
