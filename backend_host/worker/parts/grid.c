/* Grids cut into boxes; see grid.h. */
#include "parts/grid.h"

uint64_t fgw_grid_nr_blocks(const uint32_t grid[3])
{
    uint64_t nr = 0;
    return __builtin_mul_overflow((uint64_t)grid[0] * grid[1], (uint64_t)grid[2], &nr) ? UINT64_MAX : nr;
}

/* Blocks that are kept together: a last one would be less than half of the others. */
static uint32_t piece(uint64_t wanted, uint64_t left)
{
    wanted = wanted < 1 ? 1 : wanted;
    return (uint32_t)(left < wanted + wanted / 2 ? left : wanted);
}

/* How many rows, or planes, have so many blocks. */
static uint64_t rounded_up(uint64_t wanted, uint64_t each)
{
    return wanted / each + (wanted % each != 0);
}

/* The next box of about `wanted` blocks: cut across x, or whole rows, or whole planes. */
struct fgw_grid_box fgw_grid_next_box(const uint32_t next[3], const uint32_t grid[3], uint64_t wanted)
{
    struct fgw_grid_box box = {.first = {next[0], next[1], next[2]}, .size = {grid[0], grid[1], 1}};
    uint64_t plane = (uint64_t)grid[0] * grid[1];
    if (next[0] != 0 || grid[0] >= wanted + wanted / 2) {
        box.size[0] = piece(wanted, grid[0] - next[0]);
        box.size[1] = 1;
        box.axis = 0;
    } else if (next[1] != 0 || plane >= wanted + wanted / 2) {
        box.size[1] = piece(rounded_up(wanted, grid[0]), grid[1] - next[1]);
        box.axis = 1;
    } else {
        box.size[2] = piece(rounded_up(wanted, plane), grid[2] - next[2]);
        box.axis = 2;
    }
    return box;
}

/* The first block behind a box. */
void fgw_grid_advance(uint32_t next[3], const uint32_t grid[3], const struct fgw_grid_box *box)
{
    next[box->axis] += box->size[box->axis];
    for (int axis = 0; axis < 2; axis++) {
        if (next[axis] == grid[axis]) {
            next[axis] = 0;
            next[axis + 1]++;
        }
    }
}
