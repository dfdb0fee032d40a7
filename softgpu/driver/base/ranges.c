/*
 * The C library's balanced tree, with two orders: of ranges, and of an address among them. What is looked for comes
 * first in a comparison, as both glibc and musl have it.
 */
#include "base/ranges.h"

#include <search.h>
#include <stddef.h>

struct wanted {
    struct sgp_range range; /* first: comparisons of both kinds get it */
    struct sgp_range *after;
    uint64_t nr_steps;
};

static uintptr_t end_of(const struct sgp_range *range)
{
    return range->start + range->bytes;
}

static int by_start(const void *one, const void *other)
{
    const struct sgp_range *left = one, *right = other;

    return left->start < right->start ? -1 : left->start > right->start;
}

/* Never equal: the search goes down to a leaf, past the range that is wanted. */
static int past_address(const void *key, const void *other)
{
    struct wanted *wanted = (struct wanted *)key;
    struct sgp_range *range = (struct sgp_range *)other;

    wanted->nr_steps++;
    if (end_of(range) <= wanted->range.start) {
        return 1;
    }
    wanted->after = range;
    return -1;
}

bool sgp_ranges_add(struct sgp_ranges *ranges, struct sgp_range *range)
{
    return tsearch(range, &ranges->tree, by_start);
}

void sgp_ranges_remove(struct sgp_ranges *ranges, const struct sgp_range *range)
{
    tdelete(range, &ranges->tree, by_start);
}

struct sgp_range *sgp_ranges_after(struct sgp_ranges *ranges, uintptr_t address)
{
    struct wanted wanted = {.range.start = address};

    tfind(&wanted, &ranges->tree, past_address);
    ranges->nr_steps += wanted.nr_steps;
    return wanted.after;
}

struct sgp_range *sgp_ranges_find(struct sgp_ranges *ranges, uintptr_t address)
{
    struct sgp_range *after = sgp_ranges_after(ranges, address);

    return after && after->start <= address ? after : NULL;
}
