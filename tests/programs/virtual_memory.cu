/*
 * Virtual memory management as an allocator with expandable segments uses it: a large reservation that grows piece by
 * piece, is computed with as one, and shrinks; and what the driver refuses.
 */
#include <cstring>
#include <vector>

#include "driver_calls.h"

__global__ void fill(int *out, size_t nr, int first)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        out[i] = first + (int)i;
    }
}

static bool refused(CUresult result)
{
    return result != CUDA_SUCCESS;
}

static CUmemAllocationProp on_device()
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return prop;
}

/* Memory that could be shared can be had in any case; sharing it works where the device says that it does. */
static bool shares_as_announced(size_t bytes)
{
    CUmemAllocationProp prop = on_device();
    CUmemGenericAllocationHandle handle = 0;
    int has = 0, file = -1;
    OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    const CUresult result = cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemRelease(handle));
    return result == (has ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}

int main()
{
    CHECK(cudaFree(nullptr));
    int has = 0;
    OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    printf("supported: %d\n", has);
    const CUmemAllocationProp prop = on_device();
    const CUmemAccessDesc both = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t page = 0;
    OK(cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));

    const size_t whole = 64 * page;
    CUdeviceptr base = 0;
    OK(cuMemAddressReserve(&base, whole, 0, 0, 0));
    printf("aligned: %d\n", base % page == 0);
    CUmemGenericAllocationHandle handles[3];
    for (int i = 0; i < 3; i++) {
        OK(cuMemCreate(&handles[i], page, &prop, 0));
        OK(cuMemMap(base + i * page, page, 0, handles[i], 0));
    }
    OK(cuMemSetAccess(base, 3 * page, &both, 1));
    unsigned long long access = 0;
    OK(cuMemGetAccess(&access, &both.location, base + page));
    printf("access: %llu\n", access);

    const size_t nr = 3 * page / sizeof(int);
    fill<<<64, 256>>>((int *)base, nr, 7);
    std::vector<int> host(nr);
    CHECK(cudaMemcpy(host.data(), (void *)base, nr * sizeof(int), cudaMemcpyDeviceToHost));
    bool is_right = true;
    for (size_t i = 0; i < nr; i++) {
        is_right &= host[i] == 7 + (int)i;
    }
    printf("three pieces are one: %d\n", is_right);
    printf("past the end: %s\n",
           cudaGetErrorName(cudaMemcpy(host.data(), (char *)base + page, 3 * page, cudaMemcpyDefault)));

    /* The middle goes, and comes back somewhere else with what it held. */
    CUmemGenericAllocationHandle again = 0;
    OK(cuMemRetainAllocationHandle(&again, (void *)(base + page)));
    printf("the same handle: %d\n", again == handles[1]);
    OK(cuMemRelease(handles[1]));
    OK(cuMemUnmap(base + page, page));
    OK(cuMemMap(base + 8 * page, page, 0, again, 0));
    OK(cuMemSetAccess(base + 8 * page, page, &both, 1));
    OK(cuMemRelease(again));
    int first = 0;
    CHECK(cudaMemcpy(&first, (void *)(base + 8 * page), sizeof(first), cudaMemcpyDeviceToHost));
    printf("moved: %d\n", first == 7 + (int)(page / sizeof(int)));
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, (void *)(base + 8 * page + 5)));
    printf("type: %d\n", (int)attributes.type);

    CUmemGenericAllocationHandle other = 0;
    CUdeviceptr elsewhere = 0;
    printf("map at nothing: %d\n", refused(cuMemMap(0x1000000, page, 0, handles[0], 0)));
    printf("map twice: %d\n", refused(cuMemMap(base, page, 0, handles[0], 0)));
    printf("map too much: %d\n", refused(cuMemMap(base + 16 * page, 2 * page, 0, handles[0], 0)));
    printf("access to nothing: %d\n", refused(cuMemSetAccess(base + 16 * page, page, &both, 1)));
    printf("free what is mapped: %d\n", refused(cuMemAddressFree(base, whole)));
    printf("free a part: %d\n", refused(cuMemAddressFree(base + 32 * page, page)));
    printf("half a page: %d\n", refused(cuMemCreate(&other, page / 2, &prop, 0)));
    printf("no size: %d\n", refused(cuMemAddressReserve(&elsewhere, 0, 0, 0, 0)));
    printf("export is as the attribute says: %d\n", shares_as_announced(page));
    CUmemAllocationProp asked = {};
    OK(cuMemGetAllocationPropertiesFromHandle(&asked, handles[2]));
    printf("properties: %d %d %d\n", (int)asked.type, (int)asked.location.type, asked.location.id);

    OK(cuMemUnmap(base, page));
    OK(cuMemUnmap(base + 2 * page, page));
    OK(cuMemUnmap(base + 8 * page, page));
    OK(cuMemRelease(handles[0]));
    OK(cuMemRelease(handles[2]));
    OK(cuMemAddressFree(base, whole));
    return verdict(is_right);
}
