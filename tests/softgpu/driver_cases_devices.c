/* Cases with several devices: one that fails, and what a program needs that leaves one for another. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver_cases.h"

/* A kernel runs on the first device when the test lets it fail. */
int case_fails(const char *argument)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    volatile unsigned int *flags;
    CUcontext second, more;
    CUdeviceptr memory;
    CUfunction empty;
    CUevent event;

    (void)argument;
    start();
    empty = function("empty");
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuEventCreate(&event, 0));
    flags = hold(NULL);
    CHECK(cuEventRecord(event, NULL));
    while (!flags[0]) {
        usleep(100);
    }
    say_text("running");
    wait_for_line();
    say("event", cuEventQuery(event));
    flags[1] = 1;
    say("synchronize", cuCtxSynchronize());
    say("allocate", cuMemAlloc_v2(&memory, 4096));
    say("launch", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    say("create", cuMemCreate(&handle, 2 << 20, &properties, 0));
    say("context", cuCtxCreate_v2(&more, 0, 0));
    CHECK(cuCtxSetCurrent(second));
    module = NULL;
    if (works()) {
        return 1;
    }
    say_text("other");
    wait_for_line(); /* it is put right */
    CHECK(cuCtxSetCurrent(context));
    say("later", cuMemAlloc_v2(&memory, 4096));
    return 0;
}

static void *let_go(void *flags)
{
    wait_for_line();
    ((volatile unsigned int *)flags)[1] = 1;
    return NULL;
}

/* The program waits while the device fails, a kernel runs and others are queued. */
int case_fails_within(const char *argument)
{
    volatile unsigned int *flags;
    pthread_t thread;

    (void)argument;
    start();
    flags = hold(NULL);
    for (int i = 0; i < 10; i++) {
        CHECK(launch("empty", 1, 1, NULL));
    }
    while (!flags[0]) {
        usleep(100);
    }
    pthread_create(&thread, NULL, let_go, (void *)flags);
    say_text("queued");
    say("synchronize", cuCtxSynchronize());
    return pthread_join(thread, NULL);
}
