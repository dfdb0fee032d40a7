/* Memory pools: made, asked about, chosen. What is allocated from them is pool_memory.c. */
#include "memory/pool.h"

#include <pthread.h>

#include "call/call.h"
#include "call/device.h"
#include "context/pool_cache.h"
#include "cuda_api/prototypes.h"
#include "memory/share_pool.h"
#include "region/client.h"

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static uint64_t by_default[FGV_FACTS_MAX_DEVICES]; /* handles, 0 before they are asked for */
static uint64_t current[FGV_FACTS_MAX_DEVICES];    /* 0: the default one */

static uint64_t handle_of(CUmemoryPool pool)
{
    return (uint64_t)(uintptr_t)pool;
}

static CUresult default_pool(uint32_t ordinal, uint64_t *handle)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books);
    if (by_default[ordinal] == 0) {
        result = fgv_memory_pool_new(&(struct fgv_memory_pool){.ordinal = ordinal, .is_default = true},
                                     &by_default[ordinal]);
    }
    *handle = by_default[ordinal];
    pthread_mutex_unlock(&books);
    return result;
}

/* A device without pools has none to give. */
static CUresult check_device(CUdevice dev, const void *pointer)
{
    CUresult result = fgv_device_check(dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pointer) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return fgv_device_facts((uint32_t)dev)->attributes[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] == 1
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult fgv_memory_pool_current(uint32_t ordinal, CUmemoryPool *pool)
{
    uint64_t handle = *(volatile uint64_t *)&current[ordinal];
    CUresult result = handle != 0 ? CUDA_SUCCESS : default_pool(ordinal, &handle);
    *pool = (CUmemoryPool)(uintptr_t)handle;
    return result;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    uint64_t handle = 0;
    CUresult result = check_device(dev, pool_out);
    if (result == CUDA_SUCCESS) {
        result = default_pool((uint32_t)dev, &handle);
    }
    if (result == CUDA_SUCCESS) {
        *pool_out = (CUmemoryPool)(uintptr_t)handle;
    }
    return result;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    CUresult result = check_device(dev, pool);
    return result == CUDA_SUCCESS ? fgv_memory_pool_current((uint32_t)dev, pool) : result;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUresult result = check_device(dev, pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgv_memory_pool *found = fgv_memory_pool_find(pool);
    if (!found || found->is_imported || found->ordinal != (uint32_t)dev) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&books);
    current[dev] = found->is_default ? 0 : handle_of(pool);
    pthread_mutex_unlock(&books);
    return CUDA_SUCCESS;
}

/* Of the host, and of managed memory, there are no pools. */
static CUresult device_of(const CUmemLocation *location, CUmemAllocationType type, CUdevice *dev)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!location) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *dev = location->id;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;
    CUresult result = device_of(location, type, &dev);
    return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, dev) : result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;
    CUresult result = device_of(location, type, &dev);
    return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, dev) : result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUdevice dev;
    CUresult result = device_of(location, type, &dev);
    return result == CUDA_SUCCESS ? cuDeviceSetMemPool(dev, pool) : result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const bool is_shareable = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if ((poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE && !is_shareable) ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    result = check_device(poolProps->location.id, pool);
    uint64_t handle;
    if (result == CUDA_SUCCESS) {
        result = fgv_memory_pool_new(
            &(struct fgv_memory_pool){.ordinal = (uint32_t)poolProps->location.id, .is_shareable = is_shareable},
            &handle);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_call call;
    struct fgv_request_cuMemPoolCreate *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemPoolCreate, sizeof(*request), 0);
    if (request) {
        *request = (struct fgv_request_cuMemPoolCreate){
            .handle = handle, .max_bytes = poolProps->maxSize, .is_shareable = is_shareable};
    }
    result = !request ? call.error : fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS) {
        *pool = (CUmemoryPool)(uintptr_t)handle;
        return CUDA_SUCCESS;
    }
    fgv_memory_pool_drop(fgv_handle_object(FGV_HANDLE_MEMORY_POOL, handle), handle);
    return result;
}

static uint64_t wire_of(CUmemoryPool pool, const struct fgv_memory_pool *found)
{
    return found->is_default ? 0 : handle_of(pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    struct fgv_memory_pool *found;
    CUresult result = fgv_memory_pool_check(pool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (found->is_default) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (found->is_imported) {
        fgv_memory_pool_unimport(found);
        return CUDA_SUCCESS;
    }
    fgv_pool_cache_flush(handle_of(pool));
    struct fgv_call call;
    struct fgv_request_cuMemPoolDestroy *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemPoolDestroy, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->pool = handle_of(pool);
    result = fgv_call_wait(&call, NULL, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&books);
    if (current[found->ordinal] == handle_of(pool)) {
        current[found->ordinal] = 0;
    }
    pthread_mutex_unlock(&books);
    fgv_memory_pool_drop(found, handle_of(pool));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    struct fgv_memory_pool *found;
    CUresult result = fgv_memory_pool_check(pool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (found->is_imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgv_pool_cache_flush(handle_of(pool));
    struct fgv_call call;
    struct fgv_request_cuMemPoolTrimTo *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemPoolTrimTo, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemPoolTrimTo){.pool = wire_of(pool, found), .keep_bytes = minBytesToKeep};
    return fgv_call_wait(&call, NULL, 0);
}

static bool is_int(CUmemPool_attribute attr)
{
    return attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static bool is_attribute(CUmemPool_attribute attr)
{
    return attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && attr <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct fgv_memory_pool *found;
    CUresult result = fgv_memory_pool_check(pool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!value || !is_attribute(attr) || found->is_imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t wanted = is_int(attr) ? (uint64_t)*(const int *)value : *(const cuuint64_t *)value;
    fgv_pool_cache_flush(handle_of(pool));
    struct fgv_call call;
    struct fgv_request_cuMemPoolSetAttribute *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemPoolSetAttribute, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request =
        (struct fgv_request_cuMemPoolSetAttribute){.pool = wire_of(pool, found), .value = wanted, .attribute = attr};
    result = fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        found->threshold_bytes = wanted;
    }
    return result;
}

static CUresult ask_host(CUmemoryPool pool, const struct fgv_memory_pool *found, CUmemPool_attribute attr,
                         uint64_t *value)
{
    fgv_pool_cache_flush(handle_of(pool)); /* what is kept here is free, and counted as such there */
    struct fgv_call call;
    struct fgv_reply_cuMemPoolGetAttribute reply;
    struct fgv_request_cuMemPoolGetAttribute *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuMemPoolGetAttribute, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemPoolGetAttribute){.pool = wire_of(pool, found), .attribute = attr};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    *value = result == CUDA_SUCCESS ? reply.value : 0;
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct fgv_memory_pool *found;
    uint64_t said;
    CUresult result = fgv_memory_pool_check(pool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!value || !is_attribute(attr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = found->is_imported ? fgv_memory_pool_ask_imported(found, attr, &said) : ask_host(pool, found, attr, &said);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (is_int(attr)) {
        *(int *)value = (int)said;
    } else {
        *(cuuint64_t *)value = said;
    }
    return CUDA_SUCCESS;
}

/* A device cannot be kept from its own memory, and there is no other. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    struct fgv_memory_pool *found;
    CUresult result = fgv_memory_pool_check(pool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (count > 0 && !map) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || (uint32_t)map[i].location.id != found->ordinal) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    struct fgv_memory_pool *found;
    CUresult result = fgv_memory_pool_check(memPool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        fgv_device_check(location->id) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags =
        (uint32_t)location->id == found->ordinal ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
