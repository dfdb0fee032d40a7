/* A value that goes through so many steps, one after the other: each is nothing but a place at which others may have
 * the device. */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_THROTTLE_H
#define BENCHMARKS_GLOOP_PROGRAMS_THROTTLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define THROTTLE_FUNCTION static __host__ __device__ inline
#else
#define THROTTLE_FUNCTION static inline
#endif

/* Knuth's multiplier; no two steps give the same value. */
THROTTLE_FUNCTION uint64_t throttle_step(uint64_t value)
{
    return value * 6364136223846793005u + 1442695040888963407u;
}

uint64_t throttle_loops(uint64_t nr_steps);

#ifdef __cplusplus
}
#endif

#endif
