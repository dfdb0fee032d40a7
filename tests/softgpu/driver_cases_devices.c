/* Cases with several devices: what a program needs that leaves one for another, and one that fails. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver_cases.h"

#define UNIT  (UINT64_C(2) << 20)
#define BYTES (4 * UNIT)

static CUcontext contexts[2];

static void enter(int device)
{
    CHECK(cuCtxSetCurrent(contexts[device]));
    module = NULL; /* each has one of its own */
}

static void say_used(void)
{
    for (int i = 0; i < 2; i++) {
        size_t free, total;

        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuMemGetInfo_v2(&free, &total));
        printf("%s%zu", i ? " " : "used ", (total - free) >> 20);
    }
    printf(" MiB\n");
}

static void say_access(CUdeviceptr address)
{
    for (int i = 0; i < 2; i++) {
        const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i};
        unsigned long long flags;

        CHECK(cuMemGetAccess(&flags, &location, address));
        printf("%s%llu", i ? " " : "access ", flags);
    }
    printf("\n");
}

static void give_access(CUdeviceptr address, uint64_t bytes, int device, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};

    CHECK(cuMemSetAccess(address, bytes, &access, 1));
}

/* Physical memory of a device. */
static void make(CUmemGenericAllocationHandle handles[4], int device)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};

    for (int i = 0; i < 4; i++) {
        CHECK(cuMemCreate(&handles[i], UNIT, &properties, 0));
    }
}

static void map(CUdeviceptr address, const CUmemGenericAllocationHandle handles[4], int device)
{
    for (int i = 0; i < 4; i++) {
        CHECK(cuMemMap(address + (uint64_t)i * UNIT, UNIT, 0, handles[i], 0));
    }
    give_access(address, BYTES, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void release(const CUmemGenericAllocationHandle handles[4])
{
    for (int i = 0; i < 4; i++) {
        CHECK(cuMemRelease(handles[i]));
    }
}

static void say_word(const char *what, CUdeviceptr address)
{
    unsigned int value;

    CHECK(cuMemcpyDtoH_v2(&value, address, 4));
    printf("%s %u\n", what, value);
}

/* By a stream at home, to memory of the other device. */
static void copy_away(CUdeviceptr to, CUdeviceptr from)
{
    CUstream stream;
    int can_access[2];

    give_access(to, BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    say_access(to);
    give_access(to, BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    say_used();
    CHECK(cuDeviceCanAccessPeer(&can_access[0], 0, 1));
    CHECK(cuDeviceCanAccessPeer(&can_access[1], 1, 0));
    printf("peers %d %d\n", can_access[0], can_access[1]);
    enter(0);
    CHECK(cuCtxEnablePeerAccess(contexts[1], 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemcpyDtoDAsync_v2(to, from, BYTES / 2, stream));
    CHECK(cuMemcpyPeerAsync(to + BYTES / 2, contexts[1], from + BYTES / 2, contexts[0], BYTES / 2, stream));
    CHECK(cuStreamSynchronize(stream));
}

/* Memory leaves one device for another and keeps its address, while both contexts go on. */
int case_move(const char *argument)
{
    CUmemGenericAllocationHandle at_home[4], away[4];
    CUdeviceptr base, second;

    (void)argument;
    start();
    contexts[0] = context;
    CHECK(cuDevicePrimaryCtxRetain(&contexts[1], 1));
    CHECK(cuMemAddressReserve(&base, BYTES, 0, 0, 0));
    CHECK(cuMemAddressReserve(&second, BYTES, 0, 0, 0));
    make(at_home, 0);
    map(base, at_home, 0);
    CHECK(fill(base, 7, BYTES / 4 / 1024, 1024));
    CHECK(cuCtxSynchronize());
    say_used();
    make(away, 1);
    map(second, away, 1);
    copy_away(second, base);
    CHECK(cuMemUnmap(base, BYTES));
    map(base, away, 1);
    give_access(base, BYTES / 2, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    say_access(base);
    CHECK(cuMemUnmap(second, BYTES));
    release(at_home);
    release(away);
    say_used();
    enter(1);
    say_word("first", base);
    say_word("last", base + BYTES - 4);
    CHECK(fill(base, 8, BYTES / 4 / 1024, 1024));
    say_word("there", base + BYTES - 4);
    give_access(base, BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    say("nobody", cuMemsetD32_v2(base, 1, 1));
    enter(0);
    if (works()) {
        return 1;
    }
    give_access(base, BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    say_word("from home", base);
    CHECK(cuMemUnmap(base, BYTES));
    say_used();
    return 0;
}

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
    CUresult found;
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
    do {
        found = cuEventQuery(event);
    } while (found == CUDA_ERROR_NOT_READY);
    say("event", found);
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

/* What one device holds, runs and suffers is nothing to the other. */
int case_two_devices(const char *argument)
{
    volatile unsigned int *flags;
    void *parameters[] = {&flags};
    unsigned int value = 0;
    CUcontext second;
    CUdeviceptr big[2], from, to;
    int nr_devices = 0;

    (void)argument;
    start();
    CHECK(cuDeviceGetCount(&nr_devices));
    printf("%d devices\n", nr_devices);
    CHECK(cuMemHostAlloc((void **)&flags, 64, CU_MEMHOSTALLOC_PORTABLE));
    flags[0] = flags[1] = 0;
    CHECK(cuMemAlloc_v2(&big[0], 40 << 20));
    CHECK(launch("hold", 1, 1, parameters));
    while (!flags[0]) {
        usleep(100);
    }
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxSetCurrent(second));
    module = NULL;
    CHECK(cuMemAlloc_v2(&big[1], 40 << 20));
    say("third", cuMemAlloc_v2(&from, 40 << 20));
    if (works()) { /* while the first device is busy */
        return 1;
    }
    CHECK(cuMemAlloc_v2(&from, 4096));
    CHECK(fill(from, 77, 4, 256));
    CHECK(cuCtxSynchronize());
    flags[1] = 1;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemAlloc_v2(&to, 4096));
    CHECK(cuMemcpyPeer(to, context, from, second, 4096));
    CHECK(cuMemcpyDtoH_v2(&value, to + 4092, 4));
    printf("copied %u\n", value);
    CHECK(cuCtxSetCurrent(second));
    CHECK(launch("stop", 1, 1, NULL));
    say("second", cuCtxSynchronize());
    module = NULL;
    CHECK(cuCtxSetCurrent(context));
    if (works()) {
        return 1;
    }
    CHECK(cuDevicePrimaryCtxReset_v2(1));
    say("again", cuDevicePrimaryCtxRetain(&second, 1));
    return 0;
}
