/*
 * The cheapest way through a grid from its first row to its last, one row at a time and at most one column sideways, by
 * dynamic programming. A block advances a stretch of columns by several rows; what it would need of its neighbours it
 * computes itself, in a ghost zone that shrinks by one column on either side with each row.
 */
#ifndef BENCHMARKS_PROGRAMS_PATHFINDER_H
#define BENCHMARKS_PROGRAMS_PATHFINDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PATHFINDER_BLOCK = 256,     /* columns that a block holds, ghost zones included */
    PATHFINDER_BLOCK_ROWS = 20, /* rows that a block advances in one launch */
    PATHFINDER_BLOCK_WIDTH = PATHFINDER_BLOCK - 2 * PATHFINDER_BLOCK_ROWS, /* columns that it answers for */
    PATHFINDER_ROWS = 101,
};

/* One launch: `to` are the costs `nr_rows` (1 to PATHFINDER_BLOCK_ROWS) below `from`; `wall` is the first row entered.
 */
struct pathfinder_advance {
    const int32_t *wall; /* nr_rows x nr_columns, the cost of entering each place */
    const int32_t *from;
    int32_t *to;
    int nr_rows, nr_columns;
};

void pathfinder_loops(const struct pathfinder_advance *advance);

#ifdef __cplusplus
}
#endif

#endif
