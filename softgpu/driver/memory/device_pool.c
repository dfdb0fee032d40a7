/* Which pool a device has, and which one it uses. */
#include "cuda_api/prototypes.h"
#include "memory/pool.h"

SGP_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), pool_out);

    if (result) {
        return result;
    }
    *pool_out = device->default_pool;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), pool);

    if (result) {
        return result;
    }
    *pool = device->pool;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    struct sgp_device *device;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), pool);

    if (result) {
        return result;
    }
    if (!sgp_object_is(pool, SGP_MEMORY_POOL) || pool->device != device || pool->nr_imports) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    device->pool = pool;
    return sgp_leave(CUDA_SUCCESS);
}

/* Of a host, and of managed memory, there are no pools. */
static CUresult device_of(const CUmemLocation *location, CUmemAllocationType type, CUdevice *dev)
{
    if (!location) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *dev = location->id;
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;
    CUresult result = device_of(location, type, &dev);

    return result ? result : cuDeviceGetDefaultMemPool(pool_out, dev);
}

SGP_EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;
    CUresult result = device_of(location, type, &dev);

    return result ? result : cuDeviceGetMemPool(pool, dev);
}

SGP_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUdevice dev;
    CUresult result = device_of(location, type, &dev);

    return result ? result : cuDeviceSetMemPool(dev, pool);
}
