/* What hybridsort.cu does, by merging alone, from the bottom up. */
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "hybridsort.h"

static void merge(const float *from, float *to, size_t begin, size_t middle, size_t end)
{
    size_t one = begin, other = middle;
    for (size_t at = begin; at < end; at++) {
        int is_one = one < middle && (other == end || from[one] <= from[other]);
        to[at] = is_one ? from[one++] : from[other++];
    }
}

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

void hybridsort_loops(const float *values, float *sorted, size_t nr)
{
    float *from = benchmark_allocate(nr, sizeof(*from)), *to = benchmark_allocate(nr, sizeof(*to));
    memcpy(from, values, nr * sizeof(*from));
    for (size_t length = 1; length < nr; length *= 2) {
#pragma omp parallel for schedule(dynamic, 1)
        for (size_t begin = 0; begin < nr; begin += 2 * length) {
            merge(from, to, begin, least(begin + length, nr), least(begin + 2 * length, nr));
        }
        float *done = to;
        to = from;
        from = done;
    }
    memcpy(sorted, from, nr * sizeof(*from));
    free(from);
    free(to);
}
