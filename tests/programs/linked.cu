// Separately compiled files (-rdc=true) linked into one device program: functions, variables and constants of one file
// used in another, by name and by address, and names that each file keeps to itself.
#include "check.h"
#include "linked/shared.h"

static __device__ int kept = 1; // linked/device.cu has its own
static __device__ __noinline__ int own(int x)
{
    return x + kept;
}

__device__ int (*chosen)(int) = twice;

__global__ void mix(int *out)
{
    int i = threadIdx.x;
    out[i] = scales[i % 4] * own(i) + chosen(i);
    atomicAdd(&total, out[i]);
    __shared__ int best;
    if (i == 0) {
        best = highest(3, 8);
    }
    __syncthreads();
    if (i == 1) {
        printf("best %d\n", best);
    }
}

int main()
{
    int *out, host[8], sum = 0, scale[4] = {1, 10, 100, 1000};
    CHECK(cudaMalloc(&out, sizeof(host)));
    CHECK(cudaMemcpyToSymbol(scales, scale, sizeof(scale)));
    mix<<<1, 8>>>(out);
    CHECK(cudaGetLastError());
    add_to_total<<<1, 2>>>(5);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof(sum)));
    int expected = 1010;
    bool is_right = true;
    for (int i = 0; i < 8; i++) {
        is_right = is_right && host[i] == scale[i % 4] * (i + 1) + 2 * i;
        expected += host[i];
    }
    printf("last %d, total %d\n", host[7], sum);
    return verdict(is_right && sum == expected);
}
