/* The table of errors: memory, copies, pointers. */
#include "case.h"

CASE(errors_of_allocations)
{
    CUdeviceptr memory = 0, inside = device_bytes(4096, 1);
    size_t pitch = 0, size = 0;

    ROW("no result", cuMemAlloc, NULL, 16);
    ROW("0 bytes", cuMemAlloc, &memory, 0);
    ROW("more than an address space", cuMemAlloc, &memory, SIZE_MAX);
    ROW("no result", cuMemAllocPitch, NULL, &pitch, 16, 16, 4);
    ROW("no pitch", cuMemAllocPitch, &memory, NULL, 16, 16, 4);
    ROW("width 0", cuMemAllocPitch, &memory, &pitch, 0, 16, 4);
    ROW("height 0", cuMemAllocPitch, &memory, &pitch, 16, 0, 4);
    ROW("elements of 3", cuMemAllocPitch, &memory, &pitch, 16, 16, 3);
    ROW("elements of 0", cuMemAllocPitch, &memory, &pitch, 16, 16, 0);
    ROW("elements of 32", cuMemAllocPitch, &memory, &pitch, 16, 16, 32);
    ROW("a product that overflows", cuMemAllocPitch, &memory, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4);
    ROW("an address inside", cuMemFree, inside + 16);
    ROW("an address of nothing", cuMemFree, 0x10000);
    ROW("an address of the host", cuMemFree, (CUdeviceptr)(uintptr_t)&memory);
    ROW("no free", cuMemGetInfo, NULL, &size);
    ROW("no total", cuMemGetInfo, &size, NULL);
    ROW("an address of nothing", cuMemGetAddressRange, &memory, &size, 0x10000);
    ROW("address 0", cuMemGetAddressRange, &memory, &size, 0);
    ROW("no result", cuMemAllocManaged, NULL, 16, CU_MEM_ATTACH_GLOBAL);
    ROW("0 bytes", cuMemAllocManaged, &memory, 0, CU_MEM_ATTACH_GLOBAL);
    ROW("flags 0", cuMemAllocManaged, &memory, 16, 0);
    ROW("single attachment", cuMemAllocManaged, &memory, 16, CU_MEM_ATTACH_SINGLE);
    ROW("unknown flags", cuMemAllocManaged, &memory, 16, 0x80);
}

CASE(errors_of_host_memory)
{
    static uint8_t own[8192];
    unsigned int flags = 0;
    CUdeviceptr device = 0;
    void *memory = NULL;

    ROW("no result", cuMemHostAlloc, NULL, 16, 0);
    ROW("0 bytes", cuMemHostAlloc, &memory, 0, 0);
    ROW("unknown flags", cuMemHostAlloc, &memory, 16, 0x80);
    ROW("no result", cuMemAllocHost, NULL, 16);
    ROW("0 bytes", cuMemAllocHost, &memory, 0);
    ROW("nothing", cuMemFreeHost, NULL);
    ROW("pageable memory", cuMemFreeHost, own);
    ROW("no result", cuMemHostGetDevicePointer, NULL, own, 0);
    ROW("pageable memory", cuMemHostGetDevicePointer, &device, own, 0);
    ROW("nothing", cuMemHostGetDevicePointer, &device, NULL, 0);
    MUST(cuMemHostAlloc, &memory, 4096, 0);
    ROW("flags 1", cuMemHostGetDevicePointer, &device, memory, 1);
    ROW("no result", cuMemHostGetFlags, NULL, memory);
    ROW("pageable memory", cuMemHostGetFlags, &flags, own);
    ROW("nothing", cuMemHostGetFlags, &flags, NULL);
    ROW("device memory", cuMemHostGetFlags, &flags, (void *)device_bytes(16, 1));
    ROW("nothing", cuMemHostRegister, NULL, 16, 0);
    ROW("0 bytes", cuMemHostRegister, own, 0, 0);
    ROW("unknown flags", cuMemHostRegister, own, 16, 0x100);
    ROW("pinned memory", cuMemHostRegister, memory, 4096, 0);
    ROW("a range that wraps", cuMemHostRegister, own, SIZE_MAX, 0);
    ROW("nothing", cuMemHostUnregister, NULL);
    ROW("what was not registered", cuMemHostUnregister, own);
    ROW("pinned memory", cuMemHostUnregister, memory);
}

CASE(errors_of_copies)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUcontext context = NULL;
    uint8_t host[8192] = {0};

    MUST(cuCtxGetCurrent, &context);
    ROW("no source", cuMemcpyHtoD, memory, NULL, 16);
    ROW("no destination", cuMemcpyHtoD, 0, host, 16);
    ROW("a destination of nothing", cuMemcpyHtoD, 0x10000, host, 16);
    ROW("more than the destination", cuMemcpyHtoD, memory, host, 4097);
    ROW("more than what is left", cuMemcpyHtoD, memory + 4090, host, 16);
    ROW("a host destination", cuMemcpyHtoD, (CUdeviceptr)(uintptr_t)host, host, 16);
    ROW("no destination", cuMemcpyDtoH, NULL, memory, 16);
    ROW("no source", cuMemcpyDtoH, host, 0, 16);
    ROW("a source of nothing", cuMemcpyDtoH, host, 0x10000, 16);
    ROW("more than the source", cuMemcpyDtoH, host, memory, 4097);
    ROW("a length that wraps", cuMemcpyDtoH, host, memory, SIZE_MAX);
    ROW("no destination", cuMemcpyDtoD, 0, memory, 16);
    ROW("no source", cuMemcpyDtoD, memory, 0, 16);
    ROW("a source of nothing", cuMemcpyDtoD, memory, 0x10000, 16);
    ROW("more than the source", cuMemcpyDtoD, memory, memory, 5000);
    ROW("no destination", cuMemcpy, 0, memory, 16);
    ROW("no source", cuMemcpy, memory, 0, 16);
    ROW("more than the source", cuMemcpy, (CUdeviceptr)(uintptr_t)host, memory, 5000);
    ROW("no source", cuMemcpyHtoDAsync, memory, NULL, 16, NULL);
    ROW("a destination of nothing", cuMemcpyHtoDAsync, 0x10000, host, 16, NULL);
    ROW("more than the destination", cuMemcpyHtoDAsync, memory, host, 5000, NULL);
    ROW("no destination", cuMemcpyDtoHAsync, NULL, memory, 16, NULL);
    ROW("a source of nothing", cuMemcpyDtoHAsync, host, 0x10000, 16, NULL);
    ROW("more than the source", cuMemcpyDtoHAsync, host, memory, 5000, NULL);
    ROW("a source of nothing", cuMemcpyDtoDAsync, memory, 0x10000, 16, NULL);
    ROW("a destination of nothing", cuMemcpyDtoDAsync, 0x10000, memory, 16, NULL);
    ROW("more than the source", cuMemcpyDtoDAsync, memory, memory, 5000, NULL);
    ROW("no source", cuMemcpyAsync, memory, 0, 16, NULL);
    ROW("no contexts", cuMemcpyPeer, memory, NULL, memory, NULL, 16);
    ROW("a source of nothing", cuMemcpyPeer, memory, context, 0x10000, context, 16);
    ROW("no contexts", cuMemcpyPeerAsync, memory, NULL, memory, NULL, 16, NULL);
    ROW("no description", cuMemcpy2D, NULL);
    ROW("no description", cuMemcpy3D, NULL);
}

CASE(errors_of_sets)
{
    CUdeviceptr memory = device_bytes(4096, 1);

    ROW("no destination", cuMemsetD8, 0, 1, 16);
    ROW("a destination of nothing", cuMemsetD8, 0x10000, 1, 16);
    ROW("more than there is", cuMemsetD8, memory, 1, 4097);
    ROW("a length that wraps", cuMemsetD8, memory, 1, SIZE_MAX);
    ROW("an odd address", cuMemsetD16, memory + 1, 1, 4);
    ROW("more than there is", cuMemsetD16, memory, 1, 2049);
    ROW("an odd address", cuMemsetD32, memory + 2, 1, 4);
    ROW("more than there is", cuMemsetD32, memory, 1, 1025);
    ROW("a length that wraps", cuMemsetD32, memory, 1, SIZE_MAX / 2);
    ROW("a destination of nothing", cuMemsetD8Async, 0x10000, 1, 16, NULL);
    ROW("more than there is", cuMemsetD8Async, memory, 1, 4097, NULL);
    ROW("an odd address", cuMemsetD16Async, memory + 1, 1, 4, NULL);
    ROW("an odd address", cuMemsetD32Async, memory + 1, 1, 4, NULL);
    ROW("a pitch below the width", cuMemsetD2D8, memory, 8, 1, 16, 4);
    ROW("more rows than there are", cuMemsetD2D8, memory, 64, 1, 16, 65);
    ROW("an odd pitch", cuMemsetD2D16, memory, 63, 1, 16, 4);
    ROW("an odd address", cuMemsetD2D32, memory + 2, 64, 1, 8, 4);
    ROW("more rows than there are", cuMemsetD2D32Async, memory, 64, 1, 16, 65, NULL);
    ROW("a destination of nothing", cuMemsetD2D8Async, 0x10000, 64, 1, 16, 4, NULL);
}

CASE(errors_of_pointers)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE}, unknown[] = {(CUpointer_attribute)999};
    unsigned long long value[4] = {0};
    void *data[] = {value}, *none[] = {NULL};

    ROW("no result", cuPointerGetAttribute, NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    ROW("attribute 0", cuPointerGetAttribute, value, (CUpointer_attribute)0, memory);
    ROW("attribute 999", cuPointerGetAttribute, value, (CUpointer_attribute)999, memory);
    ROW("an address of nothing", cuPointerGetAttribute, value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x10000);
    ROW("no attributes", cuPointerGetAttributes, 1, NULL, data, memory);
    ROW("no places", cuPointerGetAttributes, 1, which, NULL, memory);
    ROW("no place", cuPointerGetAttributes, 1, which, none, memory);
    ROW("none asked for", cuPointerGetAttributes, 0, which, data, memory);
    ROW("attribute 999", cuPointerGetAttributes, 1, unknown, data, memory);
    ROW("no value", cuPointerSetAttribute, NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory);
    ROW("attribute 999", cuPointerSetAttribute, value, (CUpointer_attribute)999, memory);
    ROW("an address of nothing", cuPointerSetAttribute, value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x10000);
}
