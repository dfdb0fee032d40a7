/* Self-checking kernels: expect() counts what is wrong, finish() prints the verdict and gives the exit code. */
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static int nr_wrong;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t error = (call);                                                                                    \
        if (error != cudaSuccess) {                                                                                    \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error));                           \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void expect(const char *what, int index, double got, double wanted, double tolerance = 0)
{
    double distance = got > wanted ? got - wanted : wanted - got;

    if (distance <= tolerance) {
        return;
    }
    if (nr_wrong++ < 10) {
        printf("%s[%d]: %.17g, expected %.17g\n", what, index, got, wanted);
    }
}

template <typename T> static T *managed(size_t count)
{
    T *memory;

    OK(cudaMalloc(&memory, count * sizeof(T)));
    OK(cudaMemset(memory, 0, count * sizeof(T)));
    return memory;
}

template <typename T> static T *fetched(const T *device, size_t count)
{
    T *host = (T *)malloc(count * sizeof(T));

    OK(cudaMemcpy(host, device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

static int finish()
{
    OK(cudaDeviceSynchronize());
    puts(nr_wrong ? "FAIL" : "PASS");
    return nr_wrong != 0;
}
