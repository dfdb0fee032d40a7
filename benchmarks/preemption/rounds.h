/* One round of a block that keeps registers, shared memory and barriers busy: all that a kernel which is taken off the
 * device must find again. */
#ifndef BENCHMARKS_PREEMPTION_ROUNDS_H
#define BENCHMARKS_PREEMPTION_ROUNDS_H

#include <stdint.h>

/* A thread's state after the round; `shared` holds one word for each thread of the block. */
static __device__ uint32_t play_round(uint32_t state, uint32_t *shared)
{
    const unsigned self = threadIdx.x, next = (self + 1) % blockDim.x;
    shared[self] = state = state * 1664525u + 1013904223u;
    __syncthreads();
    state ^= shared[next] >> 7;
    __syncthreads();
    return state;
}

#endif
