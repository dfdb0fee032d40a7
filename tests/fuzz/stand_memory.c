/*
 * Of the stand-in: memory, copies, textures.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "by_hand.h"
#include "locks.h"

#define MOST_PINNED_BYTES (1u << 20)

/* ---- memory ---- */

static CUdeviceptr take(uint32_t kind, struct stand_object *parent, uint64_t bytes)
{
    struct stand_object *memory = stand_new(kind, parent);
    memory->value = stand_last_address;
    memory->bytes = bytes;
    stand_last_address += (bytes % STAND_DEVICE_BYTES / 4096 + 1) * 4096;
    return memory->value;
}

static CUresult give(uint32_t kind, CUdeviceptr address)
{
    struct stand_object *memory = stand_find(kind, address);
    stand_end(memory);
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fail_to_give(uint32_t kind, CUdeviceptr address, CUresult result)
{
    stand_excuse(stand_find(kind, address));
    return result;
}

#define END_MEMORY(name, kind, address)                                                                                \
    const CUresult result = stand_call(STAND_##name, #name);                                                           \
    return result == CUDA_SUCCESS ? give(kind, address) : fail_to_give(kind, address, result)

STAND_IN(cuMemAlloc_v2, CUdeviceptr *address, size_t bytes)
{
    BEGIN(cuMemAlloc_v2);
    *address = take(STAND_MEMORY, stand_current, bytes);
    return CUDA_SUCCESS;
}

STAND_IN(cuMemFree_v2, CUdeviceptr address)
{
    END_MEMORY(cuMemFree_v2, STAND_MEMORY, address);
}

STAND_IN(cuMemAllocFromPoolAsync, CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    stand_need(FGV_HANDLE_STREAM, stream);
    stand_need(FGV_HANDLE_MEMORY_POOL, pool);
    BEGIN(cuMemAllocFromPoolAsync);
    *address = take(STAND_MEMORY, (struct stand_object *)pool, bytes);
    return CUDA_SUCCESS;
}

STAND_IN(cuMemFreeAsync, CUdeviceptr address, CUstream stream)
{
    stand_need(FGV_HANDLE_STREAM, stream);
    END_MEMORY(cuMemFreeAsync, STAND_MEMORY, address);
}

STAND_IN(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    BEGIN(cuMemGetAddressRange_v2);
    struct stand_object *memory = stand_find(STAND_MEMORY, address & ~(CUdeviceptr)4095);
    if (!memory) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (base) {
        *base = memory->value;
    }
    if (bytes) {
        *bytes = memory->bytes;
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuMemAddressReserve, CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
         unsigned long long flags)
{
    (void)alignment;
    (void)flags;
    BEGIN(cuMemAddressReserve);
    if (wanted == STAND_SPAN_ADDRESS) {
        stand_new(STAND_RESERVE, NULL)->value = wanted;
        stand_last_address += wanted == stand_last_address ? bytes : 0;
        *address = wanted;
    } else {
        *address = take(STAND_RESERVE, NULL, bytes);
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuMemAddressFree, CUdeviceptr address, size_t bytes)
{
    (void)bytes;
    END_MEMORY(cuMemAddressFree, STAND_RESERVE, address);
}

STAND_IN(cuMemCreate, CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *property,
         unsigned long long flags)
{
    (void)flags;
    BEGIN(cuMemCreate);
    struct stand_object *allocation = stand_make(FGV_HANDLE_ALLOCATION, NULL);
    allocation->bytes = bytes;
    allocation->value = property->requestedHandleTypes;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)allocation;
    return CUDA_SUCCESS;
}

STAND_IN(cuMemMap, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags)
{
    (void)bytes;
    (void)offset;
    (void)flags;
    stand_need(FGV_HANDLE_ALLOCATION, (const void *)(uintptr_t)handle);
    stand_look_at_lock(address);
    return stand_call(STAND_cuMemMap, "cuMemMap");
}

STAND_IN(cuMemUnmap, CUdeviceptr address, size_t bytes)
{
    (void)bytes;
    stand_look_at_lock(address);
    return stand_call(STAND_cuMemUnmap, "cuMemUnmap");
}

STAND_IN(cuMemRelease, CUmemGenericAllocationHandle handle)
{
    struct stand_object *allocation = (struct stand_object *)(uintptr_t)handle;
    stand_need(FGV_HANDLE_ALLOCATION, allocation);
    const CUresult result = stand_call(STAND_cuMemRelease, "cuMemRelease");
    if (result != CUDA_SUCCESS) {
        stand_excuse(allocation);
        return result;
    }
    if (allocation->nr_retained == 0) {
        stand_end(allocation);
    } else {
        allocation->nr_retained--;
    }
    return CUDA_SUCCESS;
}

/* A descriptor that is somebody's from then on. Memory that was not made to be given away has none. */
STAND_IN(cuMemExportToShareableHandle, void *to, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
         unsigned long long flags)
{
    (void)flags;
    stand_need(FGV_HANDLE_ALLOCATION, (const void *)(uintptr_t)handle);
    BEGIN(cuMemExportToShareableHandle);
    if (((const struct stand_object *)(uintptr_t)handle)->value != (uint64_t)type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int file = memfd_create("exported", MFD_CLOEXEC);
    memcpy(to, &file, sizeof(file));
    return CUDA_SUCCESS;
}

STAND_IN(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *handle, void *from,
         CUmemAllocationHandleType type)
{
    (void)from;
    (void)type;
    BEGIN(cuMemImportFromShareableHandle);
    struct stand_object *allocation = stand_make(FGV_HANDLE_ALLOCATION, NULL);
    allocation->value = (uint64_t)type;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)allocation;
    return CUDA_SUCCESS;
}

/* Memory of the host, which goes with its object. */
STAND_IN(cuMemHostAlloc, void **to, size_t bytes, unsigned int flags)
{
    (void)flags;
    BEGIN(cuMemHostAlloc);
    void *data = bytes <= MOST_PINNED_BYTES ? calloc(1, bytes) : NULL;
    if (!data) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct stand_object *object = stand_new(STAND_PINNED, NULL);
    object->value = (uint64_t)(uintptr_t)data;
    object->data = data;
    *to = data;
    return CUDA_SUCCESS;
}

STAND_IN(cuMemHostGetDevicePointer_v2, CUdeviceptr *address, void *host, unsigned int flags)
{
    (void)flags;
    BEGIN(cuMemHostGetDevicePointer_v2);
    *address = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

STAND_IN(cuMemFreeHost, void *host)
{
    END_MEMORY(cuMemFreeHost, STAND_PINNED, (uint64_t)(uintptr_t)host);
}

STAND_IN(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *handle, void *address)
{
    (void)handle;
    (void)address;
    BEGIN(cuMemRetainAllocationHandle);
    return CUDA_ERROR_INVALID_VALUE;
}

STAND_IN(cuMemGetAllocationGranularity, size_t *bytes, const CUmemAllocationProp *prop,
         CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    BEGIN(cuMemGetAllocationGranularity);
    *bytes = 4096;
    return CUDA_SUCCESS;
}

STAND_IN(cuDeviceGetDefaultMemPool, CUmemoryPool *pool, CUdevice device)
{
    (void)device;
    BEGIN(cuDeviceGetDefaultMemPool);
    struct stand_object *made = stand_find(FGV_HANDLE_MEMORY_POOL, 1);
    if (!made) {
        made = stand_make(FGV_HANDLE_MEMORY_POOL, NULL);
        made->value = 1;
        made->is_excused = true;
    }
    *pool = (CUmemoryPool)made;
    return CUDA_SUCCESS;
}

STAND_IN(cuMemPoolGetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)attribute;
    stand_need(FGV_HANDLE_MEMORY_POOL, pool);
    BEGIN(cuMemPoolGetAttribute);
    memset(value, 0, attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? 4 : 8);
    return CUDA_SUCCESS;
}

STAND_IN(cuDeviceGetGraphMemAttribute, CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    (void)device;
    (void)attribute;
    BEGIN(cuDeviceGetGraphMemAttribute);
    memset(value, 0, sizeof(uint64_t));
    return CUDA_SUCCESS;
}

STAND_IN(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)to;
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuMemcpyHtoDAsync_v2);
    stand_read(from, bytes);
    return CUDA_SUCCESS;
}

STAND_IN(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)from;
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuMemcpyDtoHAsync_v2);
    memset(to, stand_is_busy() ? 0 : 0xff, bytes); /* a counter of blocks, say */
    return CUDA_SUCCESS;
}

static CUresult texture(unsigned long long *made)
{
    struct stand_object *object = stand_new(STAND_TEXTURE, stand_current);
    object->value = ++stand_last_texture;
    *made = object->value;
    return CUDA_SUCCESS;
}

STAND_IN(cuTexObjectCreate, CUtexObject *made, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *description,
         const CUDA_RESOURCE_VIEW_DESC *view)
{
    (void)resource;
    (void)description;
    (void)view;
    BEGIN(cuTexObjectCreate);
    return texture(made);
}

STAND_IN(cuSurfObjectCreate, CUsurfObject *made, const CUDA_RESOURCE_DESC *resource)
{
    (void)resource;
    BEGIN(cuSurfObjectCreate);
    return texture(made);
}

STAND_IN(cuTexObjectDestroy, CUtexObject object)
{
    END_MEMORY(cuTexObjectDestroy, STAND_TEXTURE, object);
}

STAND_IN(cuSurfObjectDestroy, CUsurfObject object)
{
    END_MEMORY(cuSurfObjectDestroy, STAND_TEXTURE, object);
}

STAND_IN(cuMipmappedArrayGetLevel, CUarray *array, CUmipmappedArray mipmap, unsigned int level)
{
    stand_need(FGV_HANDLE_MIPMAPPED_ARRAY, mipmap);
    BEGIN(cuMipmappedArrayGetLevel);
    *array = stand_below(FGV_HANDLE_ARRAY, mipmap, level);
    stand_excuse(*array); /* it goes with the mipmapped array */
    return CUDA_SUCCESS;
}
