/* base/ranges.c against what is known of the ranges by their numbers: range i is [3 i, 3 i + 2) pages. */
#include "base/ranges.h"

#include <stdio.h>
#include <stdlib.h>

#define NR   65536u
#define PAGE 4096u

static struct sgp_range all[NR];
static struct sgp_ranges ranges;

static void fail(const char *what, unsigned int i)
{
    printf("%s %u\n", what, i);
    exit(1);
}

/* At most twice the depth of a balanced tree: what red and black promise. */
static void expect_few_steps(unsigned int i)
{
    if (ranges.nr_steps > 2 * 17) {
        fail("steps", i);
    }
    ranges.nr_steps = 0;
}

static void look(unsigned int i, bool is_there, const struct sgp_range *next)
{
    uintptr_t start = all[i].start;

    if (sgp_ranges_find(&ranges, start + 2 * PAGE) || (sgp_ranges_find(&ranges, start) != NULL) != is_there) {
        fail("find", i);
    }
    ranges.nr_steps = 0;
    if (sgp_ranges_find(&ranges, start + 2 * PAGE - 1) != (is_there ? &all[i] : NULL)) {
        fail("find the end", i);
    }
    expect_few_steps(i);
    if (sgp_ranges_after(&ranges, start) != (is_there ? &all[i] : next) ||
        (ranges.nr_steps = 0, sgp_ranges_after(&ranges, start + 2 * PAGE) != next)) {
        fail("after", i);
    }
    expect_few_steps(i);
}

int main(void)
{
    if (sgp_ranges_find(&ranges, 0) || sgp_ranges_after(&ranges, 0)) {
        fail("empty", 0);
    }
    for (unsigned int i = 0; i < NR; i++) { /* a number without a common divisor with NR meets all, out of order */
        unsigned int which = i * 40503u % NR;

        all[which] = (struct sgp_range){.start = (uintptr_t)PAGE * 3 * (which + 1), .bytes = 2 * PAGE};
        if (!sgp_ranges_add(&ranges, &all[which])) {
            fail("add", which);
        }
    }
    for (unsigned int i = 0; i < NR; i++) {
        look(i, true, i + 1 < NR ? &all[i + 1] : NULL);
    }
    for (unsigned int i = 0; i < NR; i += 2) {
        sgp_ranges_remove(&ranges, &all[i]);
    }
    for (unsigned int i = 0; i + 2 < NR; i++) {
        look(i, i % 2, i % 2 ? &all[i + 2] : &all[i + 1]);
    }
    puts("PASS");
    return 0;
}
