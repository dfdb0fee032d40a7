/*
 * A device library that passes every call on to the one it is linked against, but registers no host memory at addresses
 * that were reserved, as a driver does that has no more memory to pin. Built by test_placed.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/prototypes.h"

static uint64_t reserved_address, reserved_bytes;

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    __typeof__(cuMemAddressReserve) *next = dlsym(RTLD_NEXT, "cuMemAddressReserve");
    CUresult result = next(ptr, size, alignment, addr, flags);
    reserved_address = *ptr;
    reserved_bytes = size;
    return result;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    __typeof__(cuMemHostRegister_v2) *next = dlsym(RTLD_NEXT, "cuMemHostRegister_v2");
    return (uintptr_t)p - reserved_address < reserved_bytes ? CUDA_ERROR_OUT_OF_MEMORY : next(p, bytesize, Flags);
}
