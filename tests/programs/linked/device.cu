// The variables, and a kernel that the other file launches.
#include <cstdio>

#include "shared.h"

__device__ int total = 1000;
__constant__ int scales[4];

static __device__ int kept = 100;
static __device__ __noinline__ int own(int x)
{
    return x - kept;
}

__device__ int twice(int x)
{
    return 2 * x + own(kept);
}

__global__ void add_to_total(int amount)
{
    atomicAdd(&total, amount + own(kept));
    if (threadIdx.x == 0) {
        printf("added\n");
    }
}
