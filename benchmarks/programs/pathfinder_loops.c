/* The kernel of pathfinder.cu as plain loops, block for block. */
#include <string.h>

#include "pathfinder.h"

static inline int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int larger(int a, int b)
{
    return a > b ? a : b;
}

/* `begin`: the column of the block's first place; it may lie left of the grid, as its last may lie right of it. */
static void advance_block(const struct pathfinder_advance *advance, int begin)
{
    int32_t before[PATHFINDER_BLOCK], after[PATHFINDER_BLOCK];
    int first = larger(0, -begin);
    int last = least(PATHFINDER_BLOCK, advance->nr_columns - begin) - 1;
    memcpy(before + first, advance->from + begin + first, (last - first + 1) * sizeof(*before));
    for (int row = 0; row < advance->nr_rows; row++) {
        const int32_t *wall = advance->wall + (size_t)row * advance->nr_columns;
        int from = larger(first, row + 1), to = least(last, PATHFINDER_BLOCK - 2 - row);
        for (int at = from; at <= to; at++) {
            int32_t left = before[larger(at - 1, first)], right = before[least(at + 1, last)];
            after[at] = least(least(left, before[at]), right) + wall[begin + at];
        }
        memcpy(before + from, after + from, (to - from + 1) * sizeof(*before));
    }
    int from = PATHFINDER_BLOCK_ROWS, to = least(last, PATHFINDER_BLOCK - 1 - PATHFINDER_BLOCK_ROWS);
    memcpy(advance->to + begin + from, before + from, (to - from + 1) * sizeof(*before));
}

void pathfinder_loops(const struct pathfinder_advance *advance)
{
    int nr_blocks = (advance->nr_columns + PATHFINDER_BLOCK_WIDTH - 1) / PATHFINDER_BLOCK_WIDTH;
#pragma omp parallel for
    for (int block = 0; block < nr_blocks; block++) {
        advance_block(advance, block * PATHFINDER_BLOCK_WIDTH - PATHFINDER_BLOCK_ROWS);
    }
}
