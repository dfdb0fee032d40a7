/*
 * Points of a stream that are clustered online: chunk by chunk, around centres that are points themselves, so that what
 * points lie from their centres and a price for each centre come to little (k-median by facility location). The kernel
 * tells, for each point of a set, what it would save if one more of them, the candidate, were its centre.
 *
 * Coordinates are whole numbers of 8 bits, so a distance is at most 255^2 * 256 < 2^24: all sums of floats are exact,
 * in any order, with fma or without it.
 */
#ifndef BENCHMARKS_PROGRAMS_STREAMCLUSTER_H
#define BENCHMARKS_PROGRAMS_STREAMCLUSTER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STREAMCLUSTER_DIMENSIONS = 256 };

struct streamcluster_points {
    int nr_points;
    const float *coordinates; /* the first of all points, then the second of all, and so on; whole, 0 to 255 */
    const int32_t *weights;   /* how many points of the stream each stands for */
    const int64_t *costs;     /* weight times square of the distance to the point's centre */
    int64_t *savings;         /* out: what the cost would fall by; below 0 where the candidate is farther */
};

void streamcluster_loops(const struct streamcluster_points *points, int candidate);

#ifdef __cplusplus
}
#endif

#endif
