/* scan: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_SCAN_H
#define BENCHMARKS_PROGRAMS_SCAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one block scans, and the most that two levels of blocks can. */
enum { SHORT_LENGTH = 1024, MOST_LENGTH = SHORT_LENGTH * SHORT_LENGTH / 4 };

/* Exclusive sums, modulo 2^32, of each of the arrays of SHORT_LENGTH elements that `from` consists of. */
void scan_short_loops(uint32_t *to, const uint32_t *from, size_t nr_elements);

/* The same of arrays of `length`, a multiple of SHORT_LENGTH. `sums` is room for nr_elements / SHORT_LENGTH elements.
 */
void scan_large_loops(uint32_t *to, uint32_t *sums, const uint32_t *from, size_t nr_elements, size_t length);

#ifdef __cplusplus
}
#endif

#endif
