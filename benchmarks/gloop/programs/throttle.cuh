/* A step of throttle.cu, of one block in all three ways; then the callback that posts itself. */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_THROTTLE_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_THROTTLE_CUH

#include "gloop/gloop.cuh"
#include "throttle.h"

/* The value is read and written in memory each time, as a step of a real program would. */
static __device__ void throttle_block(volatile uint64_t *value)
{
    if (threadIdx.x == 0) {
        *value = throttle_step(*value);
    }
}

static __global__ void throttle_plain(volatile uint64_t *value, uint64_t nr_steps)
{
    for (uint64_t step = 0; step < nr_steps; step++) {
        throttle_block(value);
        __syncthreads();
    }
}

template <class Loop> __device__ void throttle_on(Loop *loop, volatile uint64_t *value, uint64_t nr_steps)
{
    throttle_block(value);
    if (nr_steps > 1) {
        loop->postTask([=](Loop *loop) { throttle_on(loop, value, nr_steps - 1); });
    }
}

/* Each step is a request that the host refuses at once, and its answer. */
template <class Loop> __device__ void throttle_ask_on(Loop *loop, volatile uint64_t *value, uint64_t nr_steps)
{
    throttle_block(value);
    if (nr_steps > 1) {
        gloop::net::close(loop, -1, [=](Loop *loop, int) { throttle_ask_on(loop, value, nr_steps - 1); });
    }
}

#endif
