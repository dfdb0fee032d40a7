/*
 * A device library that passes every call on to the one it is linked against, but refuses the third launch. The first
 * copy to the host ends when four events stand in its stream, behind what four moves have to copy. Built by
 * test_swap.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "cuda_api/prototypes.h"

enum { REFUSED = 3, NR_MOVES = 4 };

static CUstream copying;
static CUevent held;
static atomic_uint nr_launches, nr_recorded;

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    __typeof__(cuLaunchKernel) *next = dlsym(RTLD_NEXT, "cuLaunchKernel");
    if (++nr_launches == REFUSED) {
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    return next(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams,
                extra);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    __typeof__(cuMemcpyDtoHAsync_v2) *next = dlsym(RTLD_NEXT, "cuMemcpyDtoHAsync_v2");
    copying = copying ? copying : hStream;
    return next(dstHost, srcDevice, ByteCount, hStream);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    __typeof__(cuEventRecord) *next = dlsym(RTLD_NEXT, "cuEventRecord");
    if (copying && hStream == copying) {
        held = held ? held : hEvent;
        nr_recorded++;
    }
    return next(hEvent, hStream);
}

CUresult cuEventQuery(CUevent hEvent)
{
    __typeof__(cuEventQuery) *next = dlsym(RTLD_NEXT, "cuEventQuery");
    return held && hEvent == held && nr_recorded < NR_MOVES ? CUDA_ERROR_NOT_READY : next(hEvent);
}
