/*
 * A device library that passes every call on to the one it is linked against. Before an event without timing, which
 * marks are, it puts a host function into the stream that waits as long as the file FAIRGV_SLOW_MARKS is there: so a
 * mark takes as long as the test wants. Built by test_worker_queries.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"

enum { NR_EVENTS = 4096, PAUSE_US = 1000 };

static CUevent untimed[NR_EVENTS];
static unsigned int nr_untimed;

static void while_the_file_is_there(void *path)
{
    while (access(path, F_OK) == 0) {
        usleep(PAUSE_US);
    }
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    __typeof__(cuEventCreate) *next = dlsym(RTLD_NEXT, "cuEventCreate");
    CUresult result = next(phEvent, Flags);
    if (result == CUDA_SUCCESS && (Flags & CU_EVENT_DISABLE_TIMING) != 0 && nr_untimed < NR_EVENTS) {
        untimed[nr_untimed++] = *phEvent;
    }
    return result;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    __typeof__(cuEventRecord) *next = dlsym(RTLD_NEXT, "cuEventRecord");
    __typeof__(cuLaunchHostFunc) *launch = dlsym(RTLD_NEXT, "cuLaunchHostFunc");
    bool is_mark = false;
    for (unsigned int i = 0; i < nr_untimed; i++) {
        is_mark |= untimed[i] == hEvent;
    }
    if (is_mark) {
        launch(hStream, while_the_file_is_there, getenv("FAIRGV_SLOW_MARKS"));
    }
    return next(hEvent, hStream);
}
