/* What runs when, in streams and across them, and on how many threads: cases for driver_cases.c. */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "driver_cases.h"

int case_order(const char *argument)
{
    volatile unsigned int *flags;
    CUstream blocking, free_stream, third;
    CUevent event;
    CUdeviceptr out;

    (void)argument;
    start();
    CHECK(cuMemAlloc_v2(&out, 64));
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&third, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));
    flags = hold(blocking);
    CHECK(cuMemsetD32Async(out, 1, 1, NULL));
    CHECK(cuMemsetD32Async(out, 2, 1, third));
    CHECK(cuEventRecord(event, third));
    CHECK(cuMemsetD32Async(out + 4, 3, 1, free_stream));
    CHECK(cuStreamSynchronize(free_stream));
    say("blocking", cuStreamQuery(blocking));
    say("legacy", cuStreamQuery(NULL));
    say("third", cuStreamQuery(third));
    say("event", cuEventQuery(event));
    CHECK(cuStreamWaitEvent(free_stream, event, 0));
    CHECK(cuMemsetD32Async(out + 4, 4, 1, free_stream));
    say("waiting", cuStreamQuery(free_stream));
    flags[1] = 1;
    CHECK(cuStreamSynchronize(free_stream));
    say("event", cuEventQuery(event));
    CHECK(cuCtxSynchronize());
    return works();
}

/* The per-thread stream of a context that is current again is the one that it was. */
int case_own_streams(const char *argument)
{
    volatile unsigned int *flags;
    CUcontext other;

    (void)argument;
    start();
    flags = hold(CU_STREAM_PER_THREAD);
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    say("other", cuStreamQuery(CU_STREAM_PER_THREAD));
    CHECK(cuCtxSetCurrent(context));
    say("again", cuStreamQuery(CU_STREAM_PER_THREAD));
    flags[1] = 1;
    say("waited", cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK(cuCtxDestroy_v2(other));
    say("after", cuStreamQuery(CU_STREAM_PER_THREAD));
    return works();
}

static int nr_threads(void)
{
    DIR *threads = opendir("/proc/self/task");
    int nr = 0;

    while (readdir(threads)) {
        nr++;
    }
    closedir(threads);
    return nr;
}

/* A row of commands in one stream, each of which has another behind it when it ends. */
int case_row(const char *argument)
{
    volatile unsigned int *flags;
    CUevent event;
    CUdeviceptr out;
    int nr_before;

    (void)argument;
    start();
    CHECK(cuMemAlloc_v2(&out, 64));
    CHECK(cuEventCreate(&event, 0));
    flags = hold(NULL);
    while (!flags[0]) {
        usleep(100);
    }
    nr_before = nr_threads();
    for (int i = 0; i < 20; i++) {
        CHECK(cuMemsetD32Async(out, 1, 1, NULL));
        CHECK(cuEventRecord(event, NULL));
    }
    flags[1] = 1;
    CHECK(cuCtxSynchronize());
    printf("threads %+d\n", nr_threads() - nr_before);
    return works();
}
