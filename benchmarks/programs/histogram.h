/* histogram: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_HISTOGRAM_H
#define BENCHMARKS_PROGRAMS_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The data are counted in as many parts as the grid has blocks; then the parts are added up. */
enum { NR_BINS = 256, NR_PARTS = 240 };

/* How often each byte occurs; four bytes in a word. `parts` is room for NR_PARTS histograms. */
void histogram_loops(uint32_t bins[NR_BINS], uint32_t *parts, const uint32_t *words, size_t nr_words);

#ifdef __cplusplus
}
#endif

#endif
