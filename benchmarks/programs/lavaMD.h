/*
 * Particles in boxes that act on each other within a cut-off radius: each box's on those of the box itself and of the
 * up to 26 boxes around it. One launch does everything: a block for each box, which brings the particles of one
 * neighbour after the other to shared memory.
 *
 * As in the original, a particle's place is random and says nothing about its box: boxes only decide who meets whom.
 */
#ifndef BENCHMARKS_PROGRAMS_LAVAMD_H
#define BENCHMARKS_PROGRAMS_LAVAMD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LAVAMD_PARTICLES = 100, /* of one box; those of box b begin at b * LAVAMD_PARTICLES */
    LAVAMD_MOST_NEIGHBOURS = 26,
};

#define LAVAMD_ALPHA 0.5f

struct lavamd_vector {
    float v, x, y, z; /* a particle's v is half of its place's square; that of a force is the potential */
};

struct lavamd_box {
    int32_t nr_neighbours, neighbours[LAVAMD_MOST_NEIGHBOURS];
};

struct lavamd_space {
    const struct lavamd_box *boxes;
    const struct lavamd_vector *particles;
    const float *charges;
    struct lavamd_vector *forces; /* on each particle, out */
    int nr_boxes;
};

void lavamd_loops(const struct lavamd_space *space);

#ifdef __cplusplus
}
#endif

#endif
