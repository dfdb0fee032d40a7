/*
 * A program for many GPUs: says which of the codes it was compiled to has run. On a GPU without machine code in it that
 * is the newest PTX. The table makes each code large.
 */
#include "check.h"

struct ran {
    int architecture;
    int is_specific;
    int sum;
};

constexpr int nr = 16384;
__device__ int table[nr] = {40, 2};

#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 0 /* the host's turn */
#endif
#ifdef __CUDA_ARCH_SPECIFIC__
constexpr int is_specific = 1;
#else
constexpr int is_specific = 0;
#endif

__global__ void which(ran *out)
{
    int sum = 0;
    for (int i = 0; i < nr; i++) {
        sum += table[i];
    }
    *out = {__CUDA_ARCH__, is_specific, sum};
}

int main()
{
    ran *device, host;
    CHECK(cudaMalloc(&device, sizeof(host)));
    which<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&host, device, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    std::printf("code for %d%s, sum %d\n", host.architecture, host.is_specific ? "a" : "", host.sum);
    return verdict(host.sum == 42);
}
