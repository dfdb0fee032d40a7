/*
 * A device library that passes every call on to the one it is linked against. A value that is to be written in a stream
 * waits there as long as the file FAIRGV_HELD_WRITE is there. Built by test_swap.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"

enum { PAUSE_US = 1000 };

static void while_the_file_is_there(void *path)
{
    while (access(path, F_OK) == 0) {
        usleep(PAUSE_US);
    }
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    __typeof__(cuStreamWriteValue32_v2) *next = dlsym(RTLD_NEXT, "cuStreamWriteValue32_v2");
    __typeof__(cuLaunchHostFunc) *launch = dlsym(RTLD_NEXT, "cuLaunchHostFunc");
    launch(stream, while_the_file_is_there, getenv("FAIRGV_HELD_WRITE"));
    return next(stream, addr, value, flags);
}
