/* What the cases of managed memory share. */
#ifndef CONFORMANCE_RUNTIME_MANAGED_CUH
#define CONFORMANCE_RUNTIME_MANAGED_CUH

#include "runtime.cuh"

static const size_t NR = 300000;

static __global__ void add(unsigned int *values, size_t nr, unsigned int what)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < nr; i += gridDim.x * blockDim.x) {
        values[i] += what + (unsigned int)i;
    }
}

static unsigned int *managed(size_t nr)
{
    unsigned int *values = nullptr;
    DO(cudaMallocManaged(&values, nr * sizeof(*values)));
    return values;
}

static unsigned long long sum(const unsigned int *values, size_t nr)
{
    unsigned long long all = 0;
    for (size_t i = 0; i < nr; i++) {
        all += values[i];
    }
    return all;
}

static void add_and_wait(unsigned int *values, size_t nr, unsigned int what)
{
    LAUNCH(add<<<32, 128>>>(values, nr, what));
    DO(cudaDeviceSynchronize());
}

#endif
