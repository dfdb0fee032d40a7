/* The kernel of nw.cu as plain loops, tile for tile. */
#include "nw.h"

static inline int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The last row and column of tiles may stick out of the matrix; they are cut off at its edge. */
static void fill_tile(const struct nw_matrices *matrices, int tile_row, int tile_column)
{
    size_t pitch = matrices->nr_cells + 1;
    int first_row = tile_row * NW_TILE + 1, first_column = tile_column * NW_TILE + 1;
    for (int row = first_row; row < first_row + NW_TILE && row <= matrices->nr_cells; row++) {
        const int32_t *similarity = matrices->similarity + row * pitch;
        int32_t *scores = matrices->scores + row * pitch, *above = scores - pitch;
        for (int column = first_column; column < first_column + NW_TILE && column <= matrices->nr_cells; column++) {
            int32_t match = above[column - 1] + similarity[column];
            scores[column] = larger(match, larger(scores[column - 1], above[column]) - NW_GAP);
        }
    }
}

void nw_loops(const struct nw_matrices *matrices, const struct nw_diagonal *diagonal)
{
#pragma omp parallel for
    for (int tile = 0; tile < diagonal->nr_tiles; tile++) {
        int column = diagonal->first_column + tile;
        fill_tile(matrices, diagonal->sum - column, column);
    }
}
