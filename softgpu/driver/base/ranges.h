/*
 * A set of ranges of addresses that do not overlap, found by address in a number of steps that grows with the logarithm
 * of theirs. Who has ranges embeds the record, which stays where it is. With the lock.
 */
#ifndef SOFTGPU_RANGES_H
#define SOFTGPU_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct sgp_range {
    uintptr_t start;
    uint64_t bytes;
};

struct sgp_ranges {
    void *tree;
    uint64_t nr_steps; /* ranges looked at since it was made, for tests */
};

/* False: no memory. The range overlaps none that is there. */
bool sgp_ranges_add(struct sgp_ranges *ranges, struct sgp_range *range);
void sgp_ranges_remove(struct sgp_ranges *ranges, const struct sgp_range *range);

/* The range that holds this address; NULL: none. */
struct sgp_range *sgp_ranges_find(struct sgp_ranges *ranges, uintptr_t address);
/* The first range that ends after this address, in the order of addresses; NULL: none. */
struct sgp_range *sgp_ranges_after(struct sgp_ranges *ranges, uintptr_t address);

#endif
