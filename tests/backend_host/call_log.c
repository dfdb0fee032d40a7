/*
 * A device library that passes every call on to the one it is linked against, and writes down in a file those that put
 * work in order: a line for each, with handles in hexadecimal, and where a persistent variant counts. Built by
 * call_log.py.
 *
 * FAIRGV_CALL_LOG: the file. FAIRGV_CALL_LOG_NO_STREAMS: streams with a priority are CUDA_ERROR_OUT_OF_MEMORY.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api/types.h"
#include "cuda_api/variants.h"

static int file = -1;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAIRGV_CALL_LOG");
    file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    __typeof__(cuLaunchKernel) *next = dlsym(RTLD_NEXT, "cuLaunchKernel");
    dprintf(file, "launch %lx %x\n", (unsigned long)hStream, gridDimX);
    return next(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams,
                extra);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    __typeof__(cuEventRecord) *next = dlsym(RTLD_NEXT, "cuEventRecord");
    dprintf(file, "record %lx %lx\n", (unsigned long)hStream, (unsigned long)hEvent);
    return next(hEvent, hStream);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    __typeof__(cuStreamWaitEvent) *next = dlsym(RTLD_NEXT, "cuStreamWaitEvent");
    dprintf(file, "wait %lx %lx\n", (unsigned long)hStream, (unsigned long)hEvent);
    return next(hStream, hEvent, Flags);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    __typeof__(cuStreamCreateWithPriority) *next = dlsym(RTLD_NEXT, "cuStreamCreateWithPriority");
    if (getenv("FAIRGV_CALL_LOG_NO_STREAMS")) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = next(phStream, flags, priority);
    dprintf(file, "create %lx %x\n", result == CUDA_SUCCESS ? (unsigned long)*phStream : 0, (unsigned int)-priority);
    return result;
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    __typeof__(cuStreamDestroy_v2) *next = dlsym(RTLD_NEXT, "cuStreamDestroy_v2");
    dprintf(file, "destroy %lx 0\n", (unsigned long)hStream);
    return next(hStream);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    __typeof__(cuLibraryGetGlobal) *next = dlsym(RTLD_NEXT, "cuLibraryGetGlobal");
    CUresult result = next(dptr, bytes, library, name);
    if (result == CUDA_SUCCESS && strcmp(name, FGV_PERSISTENT_STATE_NAME) == 0) {
        dprintf(file, "state %lx 0\n", (unsigned long)*dptr);
    }
    return result;
}
