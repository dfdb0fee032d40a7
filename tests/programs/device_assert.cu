/* An assertion that fails in a kernel: its message goes to the standard error output, and its error sticks; the process
 * does not get the device again, not even when it resets it. */
#include <cassert>

#include "check.h"

__global__ void check_table(const int *table)
{
    int row = threadIdx.y;
    assert(table[8 * blockIdx.y + row] < 12 && "the table is small");
}

int main()
{
    int host[16], *table;
    for (int i = 0; i < 16; i++) {
        host[i] = i;
    }
    CHECK(cudaMalloc(&table, sizeof(host)));
    CHECK(cudaMemcpy(table, host, sizeof(host), cudaMemcpyHostToDevice));
    check_table<<<dim3(1, 1), dim3(1, 8)>>>(table);
    CHECK(cudaDeviceSynchronize());
    check_table<<<dim3(1, 2), dim3(1, 4)>>>(table);
    CHECK(cudaDeviceSynchronize());
    check_table<<<dim3(1, 2), dim3(1, 8)>>>(table);
    cudaError_t first = cudaDeviceSynchronize();
    cudaError_t second = cudaFree(table);
    std::printf("then %s, %s\n", cudaGetErrorName(first), cudaGetErrorName(second));
    cudaError_t reset = cudaDeviceReset();
    cudaError_t third = cudaMalloc(&table, sizeof(host));
    std::printf("reset %s, then %s\n", cudaGetErrorName(reset), cudaGetErrorName(third));
    return verdict(first == cudaErrorAssert && second == cudaErrorAssert && third == cudaErrorDevicesUnavailable);
}
