/*
 * Needleman-Wunsch: the best global alignment of two sequences, by dynamic programming over a matrix of scores in which
 * each cell needs those above, left, and above left of it. Tiles on one diagonal of the matrix are independent of each
 * other, so the matrix is filled by one launch for each diagonal of tiles.
 */
#ifndef BENCHMARKS_PROGRAMS_NW_H
#define BENCHMARKS_PROGRAMS_NW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NW_TILE = 16,
    NW_GAP = 10, /* what a gap costs */
};

/* Both matrices have nr_cells + 1 rows and columns; row 0 and column 0 of the scores are given, of the other unused. */
struct nw_matrices {
    const int32_t *similarity;
    int32_t *scores;
    int nr_cells;
};

/* One launch: the `nr_tiles` tiles whose row and column of tiles add up to `sum`, from `first_column` on. */
struct nw_diagonal {
    int sum, first_column, nr_tiles;
};

void nw_loops(const struct nw_matrices *matrices, const struct nw_diagonal *diagonal);

#ifdef __cplusplus
}
#endif

#endif
