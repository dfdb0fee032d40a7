/* The kernel of streamcluster.cu as plain loops, so many points at a time that their sums stay in the first cache. */
#include <stddef.h>

#include "streamcluster.h"

enum { NR_AT_ONCE = 256 };

static void save(const struct streamcluster_points *points, int candidate, int first, int nr)
{
    float squares[NR_AT_ONCE] = {0};
    for (int dimension = 0; dimension < STREAMCLUSTER_DIMENSIONS; dimension++) {
        const float *coordinates = points->coordinates + (size_t)dimension * points->nr_points;
        float there = coordinates[candidate];
        for (int at = 0; at < nr; at++) {
            float apart = coordinates[first + at] - there;
            squares[at] += apart * apart;
        }
    }
    for (int at = 0; at < nr; at++) {
        int point = first + at;
        points->savings[point] = points->costs[point] - points->weights[point] * (int64_t)squares[at];
    }
}

void streamcluster_loops(const struct streamcluster_points *points, int candidate)
{
#pragma omp parallel for
    for (int first = 0; first < points->nr_points; first += NR_AT_ONCE) {
        int nr_left = points->nr_points - first;
        save(points, candidate, first, nr_left < NR_AT_ONCE ? nr_left : NR_AT_ONCE);
    }
}
