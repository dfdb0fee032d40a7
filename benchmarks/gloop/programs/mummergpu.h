/*
 * MUMmerGPU of Rodinia, written anew: where short sequences of bases match a long one. For each sequence and each place
 * in it, the longest match that begins there; then of each sequence its longest one, and where in the long sequence
 * that is first found.
 *
 * The original walks a suffix tree. Here it is a suffix array and a search by halving: the same answers from a sixth of
 * the memory.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_MUMMERGPU_H
#define BENCHMARKS_GLOOP_PROGRAMS_MUMMERGPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MUMMER_QUERY = 64,                                /* bases of a short sequence */
    MUMMER_LEAST = 20,                                /* of a match that is looked for */
    MUMMER_OFFSETS = MUMMER_QUERY - MUMMER_LEAST + 1, /* at which one may begin */
    MUMMER_NEIGHBOURS = 16,                           /* suffixes on each side that are asked for an earlier place */
    MUMMER_MOST_BASES = 1 << 24,
};

/* A match: its length, and below it the number of its suffix. */
#define MUMMER_MATCH(length, suffix) ((uint32_t)(length) << 24 | (uint32_t)(suffix))
#define MUMMER_LENGTH(match)         ((int)((match) >> 24))
#define MUMMER_SUFFIX(match)         ((int)((match) & 0xffffff))

struct mummer_place {
    int32_t length, offset, position; /* of a sequence's longest match: in it, and in the long one */
};

struct mummer {
    const char *bases;            /* of the long sequence, then a 0 */
    const int32_t *suffixes;      /* where each suffix begins, in the order of their letters */
    const char *queries;          /* MUMMER_QUERY bases each */
    uint32_t *matches;            /* [offset][query] */
    struct mummer_place *longest; /* of each query */
    int nr_bases, nr_queries;
};

void mummer_loops(const struct mummer *mummer);

#ifdef __cplusplus
}
#endif

#endif
