/*
 * The two-point angular correlation of Parboil, written anew: how many pairs of points of a sphere lie how far apart,
 * for points that were observed, for sets of random ones, and between both. A histogram of dot products by bins of the
 * angle.
 *
 * Products and sums are rounded one by one on the device, too, so that a pair falls into the same bin everywhere.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_TPACF_H
#define BENCHMARKS_GLOOP_PROGRAMS_TPACF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TPACF_BINS = 32 };

struct tpacf_point {
    float x, y, z;
};

/*
 * Set 0 was observed. Histogram 0 is of the pairs within set 0; for each random set r from 1, histogram r is of the
 * pairs of a point of set 0 and one of r, and nr_random_sets + r of those within r.
 */
struct tpacf_sky {
    const struct tpacf_point *points; /* nr_points of each set, one set after the other; a multiple of 256 */
    const float *bounds;  /* of dot products, falling: bin b has those of bounds[b] and below, down to the next */
    uint32_t *histograms; /* TPACF_BINS of each */
    int nr_points, nr_random_sets;
};

void tpacf_loops(const struct tpacf_sky *sky);

#ifdef __cplusplus
}
#endif

#endif
