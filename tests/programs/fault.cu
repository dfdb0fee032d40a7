/*
 * A kernel writes through a pointer to nowhere. The error is sticky: each later call gives it, and so does everything
 * until the end.
 */
#include "check.h"

__global__ void write_to(int *pointer)
{
    pointer[threadIdx.x] = 1;
}

int main()
{
    int *device, value = 0;
    CHECK(cudaMalloc(&device, 32 * sizeof(int)));
    write_to<<<1, 32>>>((int *)0x10);
    std::printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    cudaError_t first = cudaDeviceSynchronize();
    cudaError_t copied = cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost);
    cudaError_t allocated = cudaMalloc(&device, 32);
    write_to<<<1, 32>>>(device);
    cudaError_t launched = cudaGetLastError();
    cudaError_t last = cudaDeviceSynchronize();
    std::printf("synchronize: %s\ncopy: %s\nallocate: %s\n", cudaGetErrorName(first), cudaGetErrorName(copied),
                cudaGetErrorName(allocated));
    std::printf("launch again: %s\nsynchronize again: %s\n", cudaGetErrorName(launched), cudaGetErrorName(last));
    return verdict(first == cudaErrorIllegalAddress && copied == first && allocated == first && launched == first &&
                   last == first);
}
