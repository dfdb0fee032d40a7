/*
 * printf on the device. Only one thread prints, or the order of lines would be open; all conversions that a kernel may
 * use.
 */
#include "check.h"

__global__ void hello(int value)
{
    if (threadIdx.x != 0 || blockIdx.x != 1) {
        return;
    }
    printf("block %d of %d, value %d\n", (int)blockIdx.x, (int)gridDim.x, value);
    printf("unsigned %u hex %x 64-bit %lld char %c\n", 3000000000u, 0xbeefu, -5000000000ll, 'z');
    printf("float %.3f exponent %e text %s percent %%\n", 3.14159, 12345.678, "of the device");
    int nr_arguments = printf("width [%6d] [%-6d] [%06d]\n", 42, 42, 42);
    printf("%d arguments\n", nr_arguments);
}

int main()
{
    setvbuf(stdout, nullptr, _IOFBF, 1 << 16);
    std::printf("before\n");
    std::fflush(stdout);
    hello<<<3, 32>>>(10);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("after\n");
    return verdict(true);
}
