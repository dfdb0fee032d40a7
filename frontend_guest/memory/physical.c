/* Physical memory: the worker's affair. Here is what is needed to answer questions about it. */
#include "memory/physical.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/handles.h"
#include "call/call.h"
#include "call/device.h"
#include "cuda_api/prototypes.h"
#include "memory/kept.h"
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
                                                .rdma = prop->allocFlags.gpuDirectRDMACapable,
                                                .is_shareable = prop->requestedHandleTypes != 0};
    return fgv_call_wait(&call, NULL, 0);
}

CUresult fgv_physical_create(uint64_t handle, uint64_t bytes, const CUmemAllocationProp *prop)
{
    CUresult result = create(handle, bytes, prop);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && fgv_kept_give_back()) {
        result = create(handle, bytes, prop);
    }
    return result;
}

CUresult fgv_physical_release(uint64_t handle)
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

bool fgv_physical_has(uint64_t handle, CUmemAllocationProp *properties)
{
    pthread_mutex_lock(&books);
    const struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    const bool is_good = physical && physical->nr_retained != 0;
    if (is_good) {
        *properties = physical->properties;
    }
    pthread_mutex_unlock(&books);
    return is_good;
}

bool fgv_physical_of_mapping(uint64_t handle, CUmemAllocationProp *properties)
{
    pthread_mutex_lock(&books);
    const struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    if (physical) {
        *properties = physical->properties;
    }
    pthread_mutex_unlock(&books);
    return physical;
}

CUresult fgv_physical_new(const CUmemAllocationProp *properties, uint64_t *handle)
{
    struct physical *physical = calloc(1, sizeof(*physical));
    const CUresult result = physical ? fgv_handle_new(FGV_HANDLE_ALLOCATION, handle) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(physical);
        return result;
    }
    *physical = (struct physical){.properties = *properties, .nr_retained = 1};
    fgv_handle_set_object(FGV_HANDLE_ALLOCATION, *handle, physical);
    return CUDA_SUCCESS;
}

void fgv_physical_give_up(uint64_t handle)
{
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    fgv_handle_drop(FGV_HANDLE_ALLOCATION, handle);
    free(physical);
    pthread_mutex_unlock(&books);
}

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
    result = fgv_physical_new(prop, &number);
    if (result == CUDA_SUCCESS) {
        result = fgv_physical_create(number, size, prop);
        if (result == CUDA_SUCCESS) {
            *handle = number;
        } else {
            fgv_physical_give_up(number);
        }
    }
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

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp properties;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_physical_has(handle, &properties)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = fgv_physical_release(handle);
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
    return prop && fgv_physical_has(handle, prop) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

void fgv_physical_mapped(uint64_t handle)
{
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    if (physical) {
        physical->nr_mapped++;
    }
    pthread_mutex_unlock(&books);
}

void fgv_physical_unmapped(uint64_t handle)
{
    pthread_mutex_lock(&books);
    struct physical *physical = fgv_handle_object(FGV_HANDLE_ALLOCATION, handle);
    if (physical && physical->nr_mapped != 0) {
        physical->nr_mapped--;
        drop_if_unused(handle, physical);
    }
    pthread_mutex_unlock(&books);
}
