// A function that other files call; it calls one of another file itself.
#include "shared.h"

static __device__ __noinline__ int own(int x)
{
    return twice(x);
}

__device__ int highest(int a, int b)
{
    return own(a) > own(b) ? own(a) : own(b);
}
