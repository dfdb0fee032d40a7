/*
 * Hybridsort of Rodinia, written anew: floats are dealt out to buckets by size, and each bucket is sorted by merging.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_HYBRIDSORT_H
#define BENCHMARKS_GLOOP_PROGRAMS_HYBRIDSORT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HYBRIDSORT_MOST_BUCKETS = 64 };

void hybridsort_loops(const float *values, float *sorted, size_t nr);

#ifdef __cplusplus
}
#endif

#endif
