/* Kmeans: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_KMEANS_H
#define BENCHMARKS_PROGRAMS_KMEANS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KMEANS_DIMENSIONS = 16, KMEANS_MEANS = 24 };

struct kmeans_means {
    int32_t at[KMEANS_MEANS][KMEANS_DIMENSIONS];
};

/* Of the points that are nearest to each mean. */
struct kmeans_sums {
    unsigned long long of[KMEANS_MEANS][KMEANS_DIMENSIONS];
    unsigned long long nr[KMEANS_MEANS];
};

/* Coordinates stand dimension by dimension. `nearest`: each point's mean, of equal ones the first. */
void kmeans_loops(const uint8_t *coordinates, size_t nr_points, const struct kmeans_means *means, int32_t *nearest,
                  struct kmeans_sums *sums);

#ifdef __cplusplus
}
#endif

#endif
