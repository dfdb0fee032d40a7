/*
 * A device library that passes every call on to the one it is linked against, and ends the process that asks for a
 * stream which is gone, as a driver may. Built by between.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "cuda_api/types.h"

#define NR_STREAMS 1024

static CUstream gone[NR_STREAMS];

static void exchange(CUstream before, CUstream after)
{
    for (int i = 0; i < NR_STREAMS; i++) {
        if (gone[i] == before) {
            gone[i] = after;
            return;
        }
    }
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    __typeof__(cuStreamCreate) *next = dlsym(RTLD_NEXT, "cuStreamCreate");
    const CUresult result = next(phStream, Flags);
    if (result == CUDA_SUCCESS) {
        exchange(*phStream, NULL);
    }
    return result;
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    __typeof__(cuStreamDestroy_v2) *next = dlsym(RTLD_NEXT, "cuStreamDestroy_v2");
    exchange(NULL, hStream);
    return next(hStream);
}

CUresult cuStreamQuery(CUstream hStream)
{
    __typeof__(cuStreamQuery) *next = dlsym(RTLD_NEXT, "cuStreamQuery");
    for (int i = 0; hStream && i < NR_STREAMS; i++) {
        if (gone[i] == hStream) {
            abort();
        }
    }
    return next(hStream);
}
