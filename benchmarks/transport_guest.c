/*
 * The guest of benchmarks.transport: `sync ROUNDS LAUNCHES BYTES REST_US` sleeps for so long, copies so much to the
 * device, 0 for nothing, launches an empty kernel as often and waits; `copy ROUNDS MIB` copies pageable memory both
 * ways, beside a memcpy of the same size. Prints one line each, "name value unit".
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_api/prototypes.h"
#include "cuda_api/types.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult check_result = (call);                                                                                \
        if (check_result != CUDA_SUCCESS) {                                                                            \
            fprintf(stderr, "%s gave %d\n", #call, (int)check_result);                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Least, first decile and median: others use the machine, too. */
static void print_times(double *ns, size_t nr)
{
    qsort(ns, nr, sizeof(*ns), compare);
    printf("least %.0f ns\ntenth %.0f ns\nmedian %.0f ns\n", ns[0], ns[nr / 10], ns[nr / 2]);
}

static void synchronise(size_t nr, size_t nr_launches, size_t bytes, size_t rest_us)
{
    const struct timespec rest = {(time_t)(rest_us / 1000000), (long)(rest_us % 1000000 * 1000)};
    double *ns = malloc(nr * sizeof(*ns));
    CUmodule module;
    CUfunction function;
    CUstream stream;
    CUdeviceptr to = 0;
    uint8_t *from = calloc(1, bytes + 1);
    if (bytes) {
        CHECK(cuMemAlloc_v2(&to, bytes));
    }
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&function, module, "empty"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < nr; i++) {
        if (rest_us) {
            nanosleep(&rest, NULL);
        }
        const double begun_ns = now_ns();
        if (bytes) {
            CHECK(cuMemcpyHtoDAsync_v2(to, from, bytes, stream));
        }
        for (size_t launch = 0; launch < nr_launches; launch++) {
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        }
        CHECK(cuStreamSynchronize(stream));
        ns[i] = now_ns() - begun_ns;
    }
    print_times(ns, nr);
    free(ns);
    free(from);
}

/* Bytes in a nanosecond since `begun_ns`, or what was reached before. */
static double best(double known, size_t bytes, double begun_ns)
{
    const double reached = (double)bytes / (now_ns() - begun_ns);
    return reached > known ? reached : known;
}

static void copy(size_t nr, size_t bytes)
{
    CUdeviceptr device;
    uint8_t *host = malloc(bytes), *other = malloc(bytes);
    double from = 0, to = 0, plain = 0;
    memset(host, 1, bytes);
    memset(other, 2, bytes);
    CHECK(cuMemAlloc_v2(&device, bytes));
    for (size_t i = 0; i < nr; i++) {
        double begun_ns = now_ns();
        CHECK(cuMemcpyDtoH_v2(host, device, bytes));
        from = best(from, bytes, begun_ns);
        begun_ns = now_ns();
        memcpy(other, host, bytes);
        plain = best(plain, bytes, begun_ns);
        begun_ns = now_ns();
        CHECK(cuMemcpyHtoD_v2(device, other, bytes));
        to = best(to, bytes, begun_ns);
    }
    printf("from_device %.2f GB/s\nmemcpy %.2f GB/s\nto_device %.2f GB/s\n", from, plain, to);
    free(host);
    free(other);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    if (argc < 4 || (strcmp(argv[1], "sync") == 0 && argc < 6)) {
        return 2;
    }
    const size_t nr = strtoul(argv[2], NULL, 10), second = strtoul(argv[3], NULL, 10);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    if (strcmp(argv[1], "sync") == 0) {
        synchronise(nr, second, strtoul(argv[4], NULL, 10), strtoul(argv[5], NULL, 10));
    } else {
        copy(nr, second << 20);
    }
    return 0;
}
