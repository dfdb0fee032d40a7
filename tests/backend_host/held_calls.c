/*
 * A device library that passes every call on to the one it is linked against. In the folder FAIRGV_HELD_CALLS the file
 * `limit` holds cuCtxGetLimit up while it is there, and `copy` copies from device to device; with `.held` behind its
 * name another one says that it does. `linked` is a line for each link that ended: its result, and the device. Built by
 * test_crossing.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"

enum { PAUSE_US = 1000 };

static void wait_while_there(const char *name)
{
    char path[4096], held_path[4096 + sizeof(".held")];
    snprintf(path, sizeof(path), "%s/%s", getenv("FAIRGV_HELD_CALLS"), name);
    snprintf(held_path, sizeof(held_path), "%s.held", path);
    while (access(path, F_OK) == 0) {
        FILE *file = fopen(held_path, "w");
        if (file) {
            fclose(file);
        }
        usleep(PAUSE_US);
    }
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    __typeof__(cuCtxGetLimit) *next = dlsym(RTLD_NEXT, "cuCtxGetLimit");
    wait_while_there("limit");
    return next(pvalue, limit);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    __typeof__(cuMemcpyDtoDAsync_v2) *next = dlsym(RTLD_NEXT, "cuMemcpyDtoDAsync_v2");
    wait_while_there("copy");
    return next(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    __typeof__(cuLinkComplete) *next = dlsym(RTLD_NEXT, "cuLinkComplete");
    const CUresult result = next(state, cubinOut, sizeOut);
    char path[4096];
    snprintf(path, sizeof(path), "%s/linked", getenv("FAIRGV_HELD_CALLS"));
    FILE *file = fopen(path, "a");
    if (file) {
        CUdevice device = -1;
        cuCtxGetDevice(&device);
        fprintf(file, "%d on %d\n", (int)result, device);
        fclose(file);
    }
    return result;
}
