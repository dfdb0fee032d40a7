/* histogram in C: each part of the data has bins of its own, which are added up at the end. */
#include <string.h>

#include "histogram.h"

static void count(uint32_t *restrict bins, const uint32_t *words, size_t nr_words)
{
    for (size_t i = 0; i < nr_words; i++) {
        uint32_t word = words[i];
        bins[word & 0xff]++;
        bins[word >> 8 & 0xff]++;
        bins[word >> 16 & 0xff]++;
        bins[word >> 24]++;
    }
}

void histogram_loops(uint32_t bins[NR_BINS], uint32_t *parts, const uint32_t *words, size_t nr_words)
{
    memset(parts, 0, NR_PARTS * NR_BINS * sizeof(*parts));
#pragma omp parallel for
    for (size_t part = 0; part < NR_PARTS; part++) {
        size_t begin = nr_words * part / NR_PARTS, end = nr_words * (part + 1) / NR_PARTS;
        count(parts + part * NR_BINS, words + begin, end - begin);
    }
#pragma omp parallel for
    for (size_t bin = 0; bin < NR_BINS; bin++) {
        uint32_t sum = 0;
        for (size_t part = 0; part < NR_PARTS; part++) {
            sum += parts[part * NR_BINS + bin];
        }
        bins[bin] = sum;
    }
}
