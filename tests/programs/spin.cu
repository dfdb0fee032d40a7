/*
 * One kernel that lasts a given time, so that something can happen meanwhile. Prints "running" when it has been
 * launched, and what the synchronisation gave. Usage: spin [MILLISECONDS]
 */
#include "check.h"

__global__ void spin(unsigned long long duration_ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < duration_ns);
}

int main(int argc, char **argv)
{
    unsigned long long duration_ms = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20;
    spin<<<1, 1>>>(duration_ms * 1000000);
    CHECK(cudaGetLastError());
    std::printf("running\n");
    std::fflush(stdout);
    cudaError_t result = cudaDeviceSynchronize();
    std::printf("synchronize: %s\n", cudaGetErrorName(result));
    return verdict(result == cudaSuccess);
}
