/*
 * A device library that passes every call on to the one it is linked against, but maps no memory while the file
 * FAIRGV_NO_MAPPING is there, as a driver does to which an address makes no sense. Built by test_swap.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    __typeof__(cuMemMap) *next = dlsym(RTLD_NEXT, "cuMemMap");
    return access(getenv("FAIRGV_NO_MAPPING"), F_OK) == 0 ? CUDA_ERROR_INVALID_VALUE
                                                          : next(ptr, size, offset, handle, flags);
}
