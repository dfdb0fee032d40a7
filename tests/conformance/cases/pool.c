/* Stream-ordered memory and its pools; virtual memory. */
#include "case.h"

CASE(pool_default)
{
    CUmemoryPool pool = NULL, current = NULL;

    if (DO(cuDeviceGetDefaultMemPool, &pool, 0) != CUDA_SUCCESS) {
        return;
    }
    DO(cuDeviceGetMemPool, &current, 0);
    say_number("the default is the current one", pool == current);
    DO(cuDeviceSetMemPool, 0, pool);
    DO(cuMemPoolDestroy, pool);
}

CASE(pool_alloc_and_free_in_a_stream)
{
    CUdeviceptr memory = 0;
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (DO(cuMemAllocAsync, &memory, 4096, stream) != CUDA_SUCCESS) {
        return;
    }
    say("fill", fill(memory, 4, 1024, stream));
    DO(cuStreamSynchronize, stream);
    say_device_bytes("filled", memory, 4096);
    DO(cuMemFreeAsync, memory, stream);
    DO(cuStreamSynchronize, stream);
    DO(cuMemAllocAsync, &memory, 4096, stream);
    DO(cuMemFree, memory);
}

CASE(pool_attributes)
{
    CUmemoryPool pool = NULL;

    if (DO(cuDeviceGetDefaultMemPool, &pool, 0) != CUDA_SUCCESS) {
        return;
    }
    for (int attribute = 1; attribute <= 9; attribute++) {
        unsigned long long value = 0;

        say(text("attribute %d", attribute), CU(cuMemPoolGetAttribute)(pool, (CUmemPool_attribute)attribute, &value));
        say_number(text("attribute %d is", attribute), (long long)value);
    }
    cuuint64_t threshold = 1 << 20, got = 0;
    DO(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    DO(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &got);
    say_number("threshold", (long long)got);
    DO(cuMemPoolTrimTo, pool, 0);
}

/* As much of the default pool, which keeps it. */
static void leave_in_pool(CUmemoryPool pool, size_t bytes)
{
    cuuint64_t threshold = UINT64_MAX;
    CUdeviceptr memory = 0;

    MUST(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    DO(cuMemAllocAsync, &memory, bytes, NULL);
    DO(cuMemFreeAsync, memory, NULL);
    DO(cuStreamSynchronize, NULL);
}

static void leave_nothing_in_pool(CUmemoryPool pool)
{
    MUST(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(cuuint64_t){0});
    MUST(cuMemPoolTrimTo, pool, 0);
}

CASE(pool_gives_way_to_other_memory)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 16384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    size_t total = 0, step = 2 << 20;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool = NULL;
    CUdeviceptr memory;
    CUarray array;

    if (DO(cuDeviceGetDefaultMemPool, &pool, 0) != CUDA_SUCCESS) {
        return;
    }
    MUST(cuDeviceTotalMem, &total, 0);
    const size_t part = total / 5 / step * step, rest = total / 20 * 17 / step * step;
    leave_in_pool(pool, part);
    if (DO(cuMemAlloc, &memory, rest) == CUDA_SUCCESS) {
        DO(cuMemFree, memory);
    }
    leave_in_pool(pool, part);
    if (DO(cuMemCreate, &handle, rest, &properties, 0) == CUDA_SUCCESS) {
        DO(cuMemRelease, handle);
    }
    leave_in_pool(pool, part);
    descriptor.Height = rest / (descriptor.Width * 4 * sizeof(float));
    if (DO(cuArrayCreate, &array, &descriptor) == CUDA_SUCCESS) {
        DO(cuArrayDestroy, array);
    }
    leave_nothing_in_pool(pool);
}

CASE(pool_memory_freed_in_another_context)
{
    CUcontext before = NULL, other = NULL;
    CUdeviceptr memory = 0, first = 0, second = 0;
    CUmemoryPool pool = NULL;
    CUstream stream;

    if (DO(cuDeviceGetDefaultMemPool, &pool, 0) != CUDA_SUCCESS) {
        return;
    }
    MUST(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(cuuint64_t){UINT64_MAX});
    MUST(cuCtxGetCurrent, &before);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuCtxCreate_v4, &other, NULL, 0, 0);
    DO(cuMemAllocAsync, &memory, 4096, NULL);
    DO(cuStreamSynchronize, NULL);
    MUST(cuCtxSetCurrent, before);
    DO(cuMemFreeAsync, memory, stream);
    DO(cuStreamSynchronize, stream);
    MUST(cuCtxDestroy, other);
    DO(cuMemAllocAsync, &first, 4096, stream);
    DO(cuMemAllocAsync, &second, 4096, stream);
    say_number("they are apart", first != second);
    say("fill", fill(first, 4, 1024, stream));
    say("fill", fill(second, 5, 1024, stream));
    DO(cuStreamSynchronize, stream);
    say_device_bytes("filled", first, 4096);
    DO(cuMemFreeAsync, first, stream);
    DO(cuMemFreeAsync, second, stream);
    DO(cuStreamSynchronize, stream);
    leave_nothing_in_pool(pool);
}

CASE(pool_of_its_own)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool = NULL;
    CUdeviceptr memory = 0;

    if (DO(cuMemPoolCreate, &pool, &properties) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMemAllocFromPoolAsync, &memory, 10000, pool, NULL);
    DO(cuMemsetD8Async, memory, 5, 10000, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("set", memory, 10000);
    DO(cuMemFreeAsync, memory, NULL);
    DO(cuStreamSynchronize, NULL);
    DO(cuMemPoolDestroy, pool);
}

CASE(pool_with_a_maximum)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                 .maxSize = 4 << 20};
    CUdeviceptr first = 0, second = 0;
    CUmemoryPool pool = NULL;

    if (DO(cuMemPoolCreate, &pool, &properties) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMemAllocFromPoolAsync, &first, (size_t)1 << 30, pool, NULL);
    DO(cuMemAllocFromPoolAsync, &first, 1 << 20, pool, NULL);
    DO(cuMemAllocFromPoolAsync, &second, 2 << 20, pool, NULL);
    DO(cuMemsetD8Async, first, 5, 1 << 20, NULL);
    DO(cuMemFreeAsync, first, NULL);
    DO(cuMemFreeAsync, second, NULL);
    DO(cuStreamSynchronize, NULL);
    DO(cuMemPoolDestroy, pool);
}

CASE(pool_access)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccess_flags flags = 77;
    CUmemoryPool pool = NULL;

    if (DO(cuDeviceGetDefaultMemPool, &pool, 0) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMemPoolGetAccess, &flags, pool, &location);
    say_number("flags", flags);
}

CASE(pool_errors)
{
    CUdeviceptr memory = 0;

    ROW("no result", cuMemAllocAsync, NULL, 16, NULL);
    ROW("0 bytes", cuMemAllocAsync, &memory, 0, NULL);
    ROW("more than there is", cuMemAllocAsync, &memory, (size_t)1 << 50, NULL);
    say_number("0 bytes are at", (long long)memory);
    ROW("nothing", cuMemFreeAsync, 0, NULL);
    ROW("an address of nothing", cuMemFreeAsync, 0x10000, NULL);
    ROW("no result", cuDeviceGetDefaultMemPool, NULL, 0);
    ROW("no properties", cuMemPoolCreate, &(CUmemoryPool){NULL}, NULL);
    ROW("no pool", cuMemPoolDestroy, NULL);
}

static CUmemAllocationProp on_device(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

CASE(virtual_granularity)
{
    CUmemAllocationProp properties = on_device();
    size_t least = 0, recommended = 0;

    DO(cuMemGetAllocationGranularity, &least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    DO(cuMemGetAllocationGranularity, &recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    say_number("least", (long long)least);
    say_number("recommended", (long long)recommended);
}

CASE(virtual_reserve_and_free)
{
    CUdeviceptr address = 0;

    if (DO(cuMemAddressReserve, &address, 4 << 20, 0, 0, 0) != CUDA_SUCCESS) {
        return;
    }
    say_number("aligned", address % (2 << 20) == 0);
    DO(cuMemsetD8, address, 1, 16);
    DO(cuMemAddressFree, address, 4 << 20);
}

CASE(virtual_create_map_and_use)
{
    CUmemAllocationProp properties = on_device(), got;
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    unsigned long long flags = 0;
    size_t size = 2 << 20;

    if (DO(cuMemCreate, &handle, size, &properties, 0) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMemAddressReserve, &address, 2 * size, 0, 0, 0);
    DO(cuMemMap, address, size, 0, handle, 0);
    DO(cuMemSetAccess, address, size, &access, 1);
    DO(cuMemGetAccess, &flags, &access.location, address);
    say_number("flags", (long long)flags);
    say("fill", fill(address, 3, 1024, NULL));
    say_device_bytes("filled", address, 4096);
    DO(cuMemMap, address + size, size, 0, handle, 0);
    DO(cuMemSetAccess, address + size, size, &access, 1);
    say_device_bytes("seen twice", address + size, 4096);
    DO(cuMemGetAllocationPropertiesFromHandle, &got, handle);
    DO(cuMemRetainAllocationHandle, &handle, (void *)address);
    DO(cuMemRelease, handle);
    DO(cuMemUnmap, address, 2 * size);
    DO(cuMemRelease, handle);
    DO(cuMemAddressFree, address, 2 * size);
}

/* It has none before it is told. */
CASE(virtual_access)
{
    CUmemAllocationProp properties = on_device();
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    char host[64] = {0};
    size_t size = 2 << 20;

    MUST(cuMemCreate, &handle, size, &properties, 0);
    MUST(cuMemAddressReserve, &address, size, 0, 0, 0);
    MUST(cuMemMap, address, size, 0, handle, 0);
    DO(cuMemsetD8, address, 1, 64);
    DO(cuMemcpyDtoH, host, address, 64);
    DO(cuMemSetAccess, address, size, &access, 1);
    DO(cuMemsetD8, address, 1, 64);
    say_device_bytes("set", address, 64);
    DO(cuMemUnmap, address, size);
    DO(cuMemRelease, handle);
    DO(cuMemAddressFree, address, size);
}

/* What may not be written, or not be touched at all. */
CASE(virtual_access_taken)
{
    static const CUmemAccess_flags both[] = {CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemAllocationProp properties = on_device();
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0, other = device_bytes(64, 0);
    char host[64] = {0};
    size_t size = 2 << 20;

    MUST(cuMemCreate, &handle, size, &properties, 0);
    MUST(cuMemAddressReserve, &address, size, 0, 0, 0);
    MUST(cuMemMap, address, size, 0, handle, 0);
    MUST(cuMemSetAccess, address, size, &access, 1);
    DO(cuMemsetD8, address, 1, 64);
    for (unsigned int i = 0; i < 2; i++) {
        access.flags = both[i];
        if (DO(cuMemSetAccess, address, size, &access, 1) != CUDA_SUCCESS) {
            break;
        }
        DO(cuMemsetD8, address, 2, 64);
        DO(cuMemsetD32Async, address, 2, 16, NULL);
        DO(cuMemcpyDtoD, other, address, 64);
        DO(cuMemcpyDtoH, host, address, 64);
        say_bytes("read", host, 64);
    }
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DO(cuMemSetAccess, address, size, &access, 1);
    say_device_bytes("as it was", address, 64);
    DO(cuMemUnmap, address, size);
    DO(cuMemRelease, handle);
    DO(cuMemAddressFree, address, size);
}

CASE(virtual_errors)
{
    CUmemAllocationProp properties = on_device();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;

    ROW("no result", cuMemCreate, NULL, 2 << 20, &properties, 0);
    ROW("0 bytes", cuMemCreate, &handle, 0, &properties, 0);
    ROW("an odd size", cuMemCreate, &handle, 12345, &properties, 0);
    ROW("no properties", cuMemCreate, &handle, 2 << 20, NULL, 0);
    ROW("0 bytes", cuMemAddressReserve, &address, 0, 0, 0, 0);
    ROW("an odd size", cuMemAddressReserve, &address, 12345, 0, 0, 0);
    ROW("a handle of nothing", cuMemRelease, 12345);
    ROW("what was not reserved", cuMemUnmap, 0x100000, 2 << 20);
    ROW("what was not reserved", cuMemAddressFree, 0x100000, 2 << 20);
    ROW("no granularity", cuMemGetAllocationGranularity, NULL, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}
