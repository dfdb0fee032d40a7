/* The kernel of Kmeans.cu as plain loops, so many points at a time that their distances stay in the first cache. */
#include <string.h>

#include "Kmeans.h"

enum { NR_AT_ONCE = 512 };

static void find_nearest(const uint8_t *coordinates, size_t nr_points, const struct kmeans_means *means, size_t first,
                         size_t nr, int32_t *nearest)
{
    int32_t least[NR_AT_ONCE];
    for (int mean = 0; mean < KMEANS_MEANS; mean++) {
        int32_t squares[NR_AT_ONCE] = {0};
        for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
            const uint8_t *at = coordinates + dimension * nr_points + first;
            for (size_t i = 0; i < nr; i++) {
                int32_t apart = at[i] - means->at[mean][dimension];
                squares[i] += apart * apart;
            }
        }
        for (size_t i = 0; i < nr; i++) {
            if (mean == 0 || squares[i] < least[i]) {
                least[i] = squares[i];
                nearest[first + i] = mean;
            }
        }
    }
}

void kmeans_loops(const uint8_t *coordinates, size_t nr_points, const struct kmeans_means *means, int32_t *nearest,
                  struct kmeans_sums *sums)
{
    memset(sums, 0, sizeof(*sums));
#pragma omp parallel
    {
        struct kmeans_sums own = {0};
#pragma omp for
        for (size_t first = 0; first < nr_points; first += NR_AT_ONCE) {
            size_t nr = nr_points - first < NR_AT_ONCE ? nr_points - first : NR_AT_ONCE;
            find_nearest(coordinates, nr_points, means, first, nr, nearest);
            for (size_t point = first; point < first + nr; point++) {
                own.nr[nearest[point]]++;
                for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
                    own.of[nearest[point]][dimension] += coordinates[dimension * nr_points + point];
                }
            }
        }
#pragma omp critical
        for (int mean = 0; mean < KMEANS_MEANS; mean++) {
            sums->nr[mean] += own.nr[mean];
            for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
                sums->of[mean][dimension] += own.of[mean][dimension];
            }
        }
    }
}
