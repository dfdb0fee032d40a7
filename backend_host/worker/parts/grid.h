/*
 * A grid of blocks, cut into boxes: parts of a row, whole rows, or whole planes, one behind the other in the order in
 * which the device counts blocks, x fastest.
 */
#ifndef BACKEND_HOST_GRID_H
#define BACKEND_HOST_GRID_H

#include <stdint.h>

/* cffi: begin */
struct fgw_grid_box {
    uint32_t first[3], size[3];
    int axis; /* along which it was cut */
};

/* UINT64_MAX when there are more. */
uint64_t fgw_grid_nr_blocks(const uint32_t grid[3]);
/* A box that begins at `next`, of `wanted` blocks or a little more: whole rows and planes are not torn for a few. Less
 * only at the end of a row, a plane or the grid, and never less than half. */
struct fgw_grid_box fgw_grid_next_box(const uint32_t next[3], const uint32_t grid[3], uint64_t wanted);
/* Moves `next` to the first block behind the box. */
void fgw_grid_advance(uint32_t next[3], const uint32_t grid[3], const struct fgw_grid_box *box);
/* cffi: end */

#endif
