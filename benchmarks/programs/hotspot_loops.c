/* The kernel of hotspot.cu as plain loops, tile for tile. */
#include <string.h>

#include "hotspot.h"

static inline int lesser(int a, int b)
{
    return a < b ? a : b;
}

static inline int larger(int a, int b)
{
    return a > b ? a : b;
}

/* What of a block's 16 rows or columns, the first of which is the chip's `begin`, lies on the chip: first to last. */
struct span {
    int begin, first, last;
};

static struct span span_of(int block, int edge)
{
    int begin = block * HOTSPOT_BLOCK_EDGE - HOTSPOT_BLOCK_STEPS;
    return (struct span){begin, larger(0, -begin), lesser(HOTSPOT_BLOCK, edge - begin) - 1};
}

static void step_row(const struct hotspot_advance *advance, float before[][HOTSPOT_BLOCK], float *after, int y,
                     const struct span *rows, const struct span *columns, int from, int to)
{
    const float *power = advance->power + (size_t)(rows->begin + y) * advance->edge;
    const float *row = before[y], *north = before[larger(y - 1, rows->first)],
                *south = before[lesser(y + 1, rows->last)];
    for (int x = from; x <= to; x++) {
        float west = row[larger(x - 1, columns->first)], east = row[lesser(x + 1, columns->last)];
        after[x] = row[x] + advance->per_watt * power[columns->begin + x] +
                   (north[x] + south[x] - 2 * row[x]) * advance->per_kelvin_beside +
                   (west + east - 2 * row[x]) * advance->per_kelvin_beside +
                   (HOTSPOT_SINK_K - row[x]) * advance->per_kelvin_to_sink;
    }
}

static void advance_tile(const struct hotspot_advance *advance, int tile_row, int tile_column)
{
    float tiles[2][HOTSPOT_BLOCK][HOTSPOT_BLOCK];
    float (*before)[HOTSPOT_BLOCK] = tiles[0], (*after)[HOTSPOT_BLOCK] = tiles[1];
    const struct span rows = span_of(tile_row, advance->edge), columns = span_of(tile_column, advance->edge);
    for (int y = rows.first; y <= rows.last; y++) {
        memcpy(before[y] + columns.first,
               advance->from + (size_t)(rows.begin + y) * advance->edge + columns.begin + columns.first,
               (columns.last - columns.first + 1) * sizeof(**before));
    }
    for (int step = 0; step < advance->nr_steps; step++) {
        int from = larger(columns.first, step + 1), to = lesser(columns.last, HOTSPOT_BLOCK - 2 - step);
        for (int y = larger(rows.first, step + 1); y <= lesser(rows.last, HOTSPOT_BLOCK - 2 - step); y++) {
            step_row(advance, before, after[y], y, &rows, &columns, from, to);
        }
        float (*swapped)[HOTSPOT_BLOCK] = before;
        before = after;
        after = swapped;
    }
    int from = HOTSPOT_BLOCK_STEPS, to = lesser(columns.last, HOTSPOT_BLOCK - 1 - HOTSPOT_BLOCK_STEPS);
    for (int y = HOTSPOT_BLOCK_STEPS; y <= lesser(rows.last, HOTSPOT_BLOCK - 1 - HOTSPOT_BLOCK_STEPS); y++) {
        memcpy(advance->to + (size_t)(rows.begin + y) * advance->edge + columns.begin + from, before[y] + from,
               (to - from + 1) * sizeof(**before));
    }
}

void hotspot_loops(const struct hotspot_advance *advance)
{
    int nr_tiles = (advance->edge + HOTSPOT_BLOCK_EDGE - 1) / HOTSPOT_BLOCK_EDGE;
#pragma omp parallel for collapse(2)
    for (int row = 0; row < nr_tiles; row++) {
        for (int column = 0; column < nr_tiles; column++) {
            advance_tile(advance, row, column);
        }
    }
}
