/* The histograms of tpacf.cu as plain loops over pairs. */
#include "tpacf.h"

static int bin_of(const float *bounds, struct tpacf_point one, struct tpacf_point other)
{
    float dot = one.x * other.x + one.y * other.y + one.z * other.z;
    int bin = 0;
    while (bin + 1 < TPACF_BINS && dot <= bounds[bin + 1]) {
        bin++;
    }
    return bin;
}

static void count(const struct tpacf_sky *sky, int number)
{
    int nr_sets = sky->nr_random_sets, nr = sky->nr_points;
    int first = number <= nr_sets ? 0 : number - nr_sets, second = number <= nr_sets ? number : first;
    const struct tpacf_point *ones = sky->points + (long)first * nr, *others = sky->points + (long)second * nr;
    uint32_t *histogram = sky->histograms + (long)number * TPACF_BINS;
    for (int bin = 0; bin < TPACF_BINS; bin++) {
        histogram[bin] = 0;
    }
    for (int one = 0; one < nr; one++) {
        for (int other = first == second ? one + 1 : 0; other < nr; other++) {
            histogram[bin_of(sky->bounds, ones[one], others[other])]++;
        }
    }
}

void tpacf_loops(const struct tpacf_sky *sky)
{
#pragma omp parallel for schedule(dynamic)
    for (int number = 0; number <= 2 * sky->nr_random_sets; number++) {
        count(sky, number);
    }
}
