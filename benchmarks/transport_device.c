/*
 * A device library for benchmarks.transport: softgpu, but for launches, events and copies between host and device,
 * which do nothing, take the time that they are told to and are done after the time that they are told to. They are
 * counted. So what remains of a launch and its synchronisation is FairGV's own, and how it deals with a driver whose
 * calls cost as much as a GPU's.
 *
 * FAIRGV_QUICK_LAUNCH_NS, _RECORD_NS and _LOOK_NS: what launches and copies, events' records and questions cost their
 * caller. FAIRGV_QUICK_KERNEL_NS: how long a kernel runs; FAIRGV_QUICK_COPY_MB_S: how fast copies are. All 0: at once.
 * FAIRGV_QUICK_WAKE_NS: how long the device takes to begin after a rest of a millisecond.
 * FAIRGV_QUICK_COUNTS: a file of struct count, one for each call; a worker behind walls has it in its cache.
 *
 * Wrong when: the program wants a result. No kernel runs, and no byte is copied.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "cuda_api/types.h"

#define CALIBRATION_NS 10000000
#define REST_NS        1000000
#define COUNTS_BYTES   4096

/* The file's format; benchmarks/transport.py reads it. */
struct count {
    char name[24];
    uint64_t nr;
};

static struct count unseen[COUNTS_BYTES / sizeof(struct count)];
static struct count *counts = unseen;

enum {
    LAUNCH,
    RECORD,
    EVENT_LOOK,
    STREAM_LOOK,
    EVENT_WAIT,
    STREAM_WAIT,
    CONTEXT_WAIT,
    SWITCH,
    CREATE,
    COPY,
    ELAPSED,
    NR_COUNTS
};
static const char *const names[NR_COUNTS] = {
    [LAUNCH] = "cuLaunchKernel",         [RECORD] = "cuEventRecord",
    [EVENT_LOOK] = "cuEventQuery",       [STREAM_LOOK] = "cuStreamQuery",
    [EVENT_WAIT] = "cuEventSynchronize", [STREAM_WAIT] = "cuStreamSynchronize",
    [CONTEXT_WAIT] = "cuCtxSynchronize", [SWITCH] = "cuCtxSetCurrent",
    [CREATE] = "cuEventCreate",          [COPY] = "cuMemcpyAsync",
    [ELAPSED] = "cuEventElapsedTime",
};

/* In ticks of the processor's clock, which is read without anybody's counting it. */
static uint64_t launch_ticks, record_ticks, look_ticks, kernel_ticks, wake_ticks, rest_ticks;
static double ticks_per_byte, ticks_per_ns;
static uint64_t end_ticks; /* of all that was submitted */

static uint64_t setting(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double measure_ticks_per_ns(void)
{
    const uint64_t begun_ns = now_ns(), begun_ticks = __rdtsc();
    uint64_t passed_ns;
    do {
        passed_ns = now_ns() - begun_ns;
    } while (passed_ns < CALIBRATION_NS);
    return (double)(__rdtsc() - begun_ticks) / (double)passed_ns;
}

static uint64_t ticks_of(const char *name)
{
    return (uint64_t)((double)setting(name) * ticks_per_ns);
}

/* Where a worker has walls, it may write in its cache and nowhere else, and has that only with its guest. */
static int open_counts(void)
{
    const char *path = getenv("FAIRGV_QUICK_COUNTS");
    const int kept = path ? open("/cache/counts", O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (kept >= 0 && ftruncate(kept, COUNTS_BYTES) == 0) {
        return kept;
    }
    return path ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

static void map_counts(void)
{
    const int file = open_counts();
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, COUNTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) {
        counts = page;
    }
    for (int i = 0; i < NR_COUNTS; i++) {
        strcpy(counts[i].name, names[i]);
    }
}

__attribute__((constructor)) static void begin(void)
{
    const uint64_t mb_s = setting("FAIRGV_QUICK_COPY_MB_S");
    ticks_per_ns = measure_ticks_per_ns();
    launch_ticks = ticks_of("FAIRGV_QUICK_LAUNCH_NS");
    record_ticks = ticks_of("FAIRGV_QUICK_RECORD_NS");
    look_ticks = ticks_of("FAIRGV_QUICK_LOOK_NS");
    kernel_ticks = ticks_of("FAIRGV_QUICK_KERNEL_NS");
    wake_ticks = ticks_of("FAIRGV_QUICK_WAKE_NS");
    rest_ticks = (uint64_t)(REST_NS * ticks_per_ns);
    ticks_per_byte = mb_s ? ticks_per_ns * 1e3 / (double)mb_s : 0;
}

/* One thread of a worker makes all calls that matter here. */
static void enter(int call, uint64_t ticks)
{
    static bool is_mapped;
    if (!is_mapped) {
        is_mapped = true;
        map_counts();
    }
    const uint64_t begun_ticks = __rdtsc();
    counts[call].nr++;
    while (ticks != 0 && __rdtsc() - begun_ticks < ticks) {
        continue;
    }
}

static void submit(uint64_t ticks)
{
    const uint64_t now_ticks = __rdtsc();
    if (now_ticks > end_ticks) {
        end_ticks = now_ticks - end_ticks > rest_ticks ? now_ticks + wake_ticks : now_ticks;
    }
    end_ticks += ticks;
}

static void wait_until(uint64_t ticks)
{
    while (__rdtsc() < ticks) {
        continue;
    }
}

/* What is asked is answered with what was so when the question came. */
static CUresult look(int call, uint64_t ticks)
{
    const CUresult result = __rdtsc() < ticks ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    enter(call, look_ticks);
    return result;
}

struct event {
    uint64_t end_ticks;
};

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    (void)f, (void)gridDimX, (void)gridDimY, (void)gridDimZ, (void)blockDimX, (void)blockDimY, (void)blockDimZ;
    (void)sharedMemBytes, (void)hStream, (void)kernelParams, (void)extra;
    enter(LAUNCH, launch_ticks);
    submit(kernel_ticks);
    return CUDA_SUCCESS;
}

static CUresult copy(size_t bytes)
{
    enter(COPY, launch_ticks);
    submit((uint64_t)((double)bytes * ticks_per_byte));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    (void)dstHost, (void)srcDevice, (void)hStream;
    return copy(ByteCount);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    (void)dstDevice, (void)srcHost, (void)hStream;
    return copy(ByteCount);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    (void)Flags;
    counts[CREATE].nr++;
    *phEvent = calloc(1, sizeof(struct event));
    return *phEvent ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    free(hEvent);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    (void)hStream;
    enter(RECORD, record_ticks);
    submit(0);
    ((struct event *)hEvent)->end_ticks = end_ticks;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent hEvent)
{
    return look(EVENT_LOOK, ((struct event *)hEvent)->end_ticks);
}

CUresult cuStreamQuery(CUstream hStream)
{
    (void)hStream;
    return look(STREAM_LOOK, end_ticks);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    enter(EVENT_WAIT, 0);
    wait_until(((struct event *)hEvent)->end_ticks);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    (void)hStream;
    enter(STREAM_WAIT, 0);
    wait_until(end_ticks);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    enter(CONTEXT_WAIT, 0);
    wait_until(end_ticks);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    enter(ELAPSED, 0);
    const uint64_t ticks = ((struct event *)hEnd)->end_ticks - ((struct event *)hStart)->end_ticks;
    *pMilliseconds = (float)((double)ticks / ticks_per_ns / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    (void)hStream, (void)hEvent, (void)Flags;
    return CUDA_SUCCESS; /* one thing after the other anyway */
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    __typeof__(cuCtxSetCurrent) *next = dlsym(RTLD_NEXT, "cuCtxSetCurrent");
    counts[SWITCH].nr += ctx != NULL; /* a worker that is ending lets go of its contexts, if it lives to do so */
    return next(ctx);
}

/* As a GPU that shares, since that is what workers meet. */
CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    __typeof__(cuDeviceGetAttribute) *next = dlsym(RTLD_NEXT, "cuDeviceGetAttribute");
    const CUresult result = next(pi, attrib, dev);
    if (result == CUDA_SUCCESS && attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED) {
        *pi = 1;
    }
    return result;
}
