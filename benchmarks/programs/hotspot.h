/*
 * The temperature of a chip, cell by cell, from the power that each cell turns into heat: what flows to the four
 * neighbours and to the heat sink, in explicit steps. A block advances a tile by several steps before it writes it
 * back; what it would need of its neighbours it computes itself, in a ghost zone that shrinks by one cell on every side
 * with each step.
 */
#ifndef BENCHMARKS_PROGRAMS_HOTSPOT_H
#define BENCHMARKS_PROGRAMS_HOTSPOT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HOTSPOT_BLOCK = 16,      /* cells of a block's edge, ghost zones included */
    HOTSPOT_BLOCK_STEPS = 2, /* steps that a block advances in one launch, at most */
    HOTSPOT_BLOCK_EDGE = HOTSPOT_BLOCK - 2 * HOTSPOT_BLOCK_STEPS, /* cells of the edge of the tile it answers for */
    HOTSPOT_STEPS = 61,
};

#define HOTSPOT_SINK_K 80.0f

/* One launch: `to` are the temperatures (K) `nr_steps` after `from`; all arrays are `edge` x `edge`. */
struct hotspot_advance {
    const float *power; /* W of each cell */
    const float *from;
    float *to;
    int edge, nr_steps;
    /* What a step adds for each W, and for each K that a neighbour or the heat sink is warmer. */
    float per_watt, per_kelvin_beside, per_kelvin_to_sink;
};

void hotspot_loops(const struct hotspot_advance *advance);

#ifdef __cplusplus
}
#endif

#endif
