/*
 * Physical memory, and its mappings at addresses that were reserved (reservation.c). Both are the worker's affair; here
 * is what is needed to answer questions about them.
 */
#include "memory/virtual_memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "call/call.h"
#include "call/device.h"
#include "context/pool_cache.h"
#include "cuda_api/prototypes.h"
#include "memory/ranges.h"
#include "region/client.h"

/* Hangs on the number of an allocation, which is good for asking while it is held or mapped. */
struct physical {
    CUmemAllocationProp properties;
    uint32_t nr_retained, nr_mapped;
};

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static size_t granularity_known[2]; /* by option, of plain memory */

static CUresult check_properties(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return fgv_device_check(prop->location.id);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!granularity || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = check_properties(prop);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool is_plain = prop->allocFlags.compressionType == 0 && prop->allocFlags.gpuDirectRDMACapable == 0;
    size_t *known = is_plain ? &granularity_known[option] : NULL;
    if (known && *(volatile size_t *)known != 0) {
        *granularity = *known;
        return CUDA_SUCCESS;
    }
    struct fgv_call call;
    struct fgv_reply_cuMemGetAllocationGranularity reply;
    struct fgv_request_cuMemGetAllocationGranularity *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemGetAllocationGranularity, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemGetAllocationGranularity){.option = option,
                                                                  .compression = prop->allocFlags.compressionType,
                                                                  .rdma = prop->allocFlags.gpuDirectRDMACapable};
    result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (known) {
        *known = reply.bytes;
    }
    *granularity = reply.bytes;
    return CUDA_SUCCESS;
}

static CUresult create(uint64_t handle, uint64_t bytes, const CUmemAllocationProp *prop)
{
    struct fgv_call call;
    struct fgv_request_cuMemCreate *request = fgv_call_begin_anywhere(&call, FGV_CALL_cuMemCreate, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemCreate){.handle = handle,
                                                .bytes = bytes,
                                                .compression = prop->allocFlags.compressionType,
                                                .rdma = prop->allocFlags.gpuDirectRDMACapable};
    return fgv_call_wait(&call, NULL, 0);
}

/* As create(), after what is kept for pools was given back where there is no room. */
static CUresult create_somehow(uint64_t handle, uint64_t bytes, const CUmemAllocationProp *prop)
{
    CUresult result = create(handle, bytes, prop);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && fgv_pool_cache_flush(0) && cuCtxSynchronize() == CUDA_SUCCESS) {
        result = create(handle, bytes, prop);
    }
    return result;
}

static CUresult release(uint64_t handle)
{
    struct fgv_call call;
    struct fgv_request_cuMemRelease *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemRelease, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->handle = handle;
    return fgv_call_wait(&call, NULL, 0);
}

/* PyTorch asks for memory that a file descriptor could stand for whether or not it will share any, so that is given;
 * making the descriptor is what is refused. */
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!handle || size == 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = check_properties(prop);
    if (result == CUDA_SUCCESS && ((unsigned)prop->requestedHandleTypes & ~1u) != CU_MEM_HANDLE_TYPE_NONE) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t number;
    struct physical *physical = calloc(1, sizeof(*physical));
    result = !physical ? CUDA_ERROR_OUT_OF_MEMORY : fgv_handle_new(FGV_HANDLE_ALLOCATION, &number);
    if (result == CUDA_SUCCESS) {
        physical->properties = *prop;
        physical->nr_retained = 1;
        fgv_handle_set_object(FGV_HANDLE_ALLOCATION, number, physical);
        result = create_somehow(number, size, prop);
        if (result == CUDA_SUCCESS) {
            *handle = number;
            return CUDA_SUCCESS;
        }
        fgv_handle_drop(FGV_HANDLE_ALLOCATION, number);
    }
    free(physical);
    return result;
}

/* Under the lock. */
static void drop_if_unused(uint64_t number, struct physical *physical)
{
    if (physical->nr_retained != 0 || physical->nr_mapped != 0) {
        return;
    }
    fgv_handle_drop(FGV_HANDLE_ALLOCATION, number);
    free(physical);
}

static bool is_kept(uint64_t number)
{
    pthread_mutex_lock(&books);
    const struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, number);
    const bool is_good = physical && physical->nr_retained != 0;
    pthread_mutex_unlock(&books);
    return is_good;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_kept(handle)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = release(handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    if (physical && physical->nr_retained != 0) {
        physical->nr_retained--;
        drop_if_unused(handle, physical);
    }
    pthread_mutex_unlock(&books);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&books);
    const struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    const bool is_good = prop && physical && physical->nr_retained != 0;
    if (is_good) {
        *prop = physical->properties;
    }
    pthread_mutex_unlock(&books);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_reply_cuMemRetainAllocationHandle reply;
    struct fgv_request_cuMemRetainAllocationHandle *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemRetainAllocationHandle, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->address = (uint64_t)(uintptr_t)addr;
    result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, reply.handle);
    if (physical) {
        physical->nr_retained++;
    }
    pthread_mutex_unlock(&books);
    *handle = reply.handle;
    return physical ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* ---- one mapped into the other ---- */

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
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0 || !is_kept(handle)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = map(ptr, size, offset, handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    if (physical) {
        physical->nr_mapped++;
    }
    pthread_mutex_unlock(&books);
    fgv_memory_enter(ptr, size, FGV_MEMORY_MAPPED, CU_MEM_ACCESS_FLAGS_PROT_NONE, handle);
    return CUDA_SUCCESS;
}

static void unmapped(const struct fgv_range *range)
{
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, range->owner);
    if (physical && physical->nr_mapped != 0) {
        physical->nr_mapped--;
        drop_if_unused(range->owner, physical);
    }
    pthread_mutex_unlock(&books);
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

static void mapping_undo(const struct fgv_mapping *mapping, bool is_mapped)
{
    if (is_mapped) {
        unmap(mapping->address, mapping->bytes);
    }
    release(mapping->handle);
    fgv_handle_drop(FGV_HANDLE_ALLOCATION, mapping->handle);
    cuMemAddressFree(mapping->address, mapping->bytes);
}

CUresult fgv_mapping_make(struct fgv_mapping *mapping)
{
    const CUmemAllocationProp plain = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUdeviceptr address;
    CUresult result = cuMemAddressReserve(&address, mapping->bytes, FGV_MAPPING_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    mapping->address = address;
    result = fgv_handle_new(FGV_HANDLE_ALLOCATION, &mapping->handle);
    if (result == CUDA_SUCCESS) {
        result = create_somehow(mapping->handle, mapping->bytes, &plain);
        if (result != CUDA_SUCCESS) {
            fgv_handle_drop(FGV_HANDLE_ALLOCATION, mapping->handle);
        }
    }
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
        mapping_undo(mapping, is_mapped);
    }
    return result;
}

void fgv_mapping_drop(const struct fgv_mapping *mapping)
{
    mapping_undo(mapping, true);
}
