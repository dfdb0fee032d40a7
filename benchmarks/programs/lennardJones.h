/*
 * Particles in a periodic cube that attract and repel each other by a Lennard-Jones potential up to a cut-off, moved on
 * by velocity Verlet, in reduced units. They stand cell by cell, and a cell's act on those of the 27 cells around it.
 *
 * Between two migrations particles keep their cell and their copy of the cube, wherever they drift: cells are wider
 * than the cut-off. For a pair to be missed, two would have to come 0.86 nearer to each other within 20 steps, six
 * times as fast as two usually do at the temperature of the start, with none in their way.
 */
#ifndef BENCHMARKS_PROGRAMS_LENNARD_JONES_H
#define BENCHMARKS_PROGRAMS_LENNARD_JONES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LENNARD_JONES_CELL_PARTICLES = 32, /* at the start */
    LENNARD_JONES_BLOCK = 128,         /* particles whose energies are added up at once */
    LENNARD_JONES_CYCLES = 2,          /* from one migration to the next */
    LENNARD_JONES_STEPS = 20,          /* of a cycle */
};

#define LENNARD_JONES_CELL_EDGE 3.36f /* with 32 particles in each, density 0.844 */
#define LENNARD_JONES_CUTOFF    2.5f
#define LENNARD_JONES_STEP      0.005f

/* The potential of a pair at the cut-off, which is taken off those of all pairs: 4 (2.5^-12 - 2.5^-6). */
#define LENNARD_JONES_AT_CUTOFF (-0.016316891f)

struct lennard_jones_vector {
    float x, y, z, potential; /* of a force, the particle's half of those of all its pairs; else 0 */
};

struct lennard_jones_particles {
    int nr_particles, edge; /* cells along the cube's edge, 3 at least */
    const int32_t *begins;  /* of each cell's particles, x running fastest; one more than cells */
    const int32_t *cells;   /* of each particle */
    struct lennard_jones_vector *places, *velocities, *forces;
    float *energies; /* of each LENNARD_JONES_BLOCK particles, kinetic and potential */
};

/* The start: a crystal, and velocities of temperature 1. There are `edge` cells along the cube's edge. */
void lennard_jones_generate(int edge, struct lennard_jones_vector *places, struct lennard_jones_vector *velocities);

/* Forces at the places where particles are. */
void lennard_jones_loops_act(const struct lennard_jones_particles *particles);

/* Half a step of acceleration and, if `is_moving`, a whole step of motion after it. */
void lennard_jones_loops_integrate(const struct lennard_jones_particles *particles, bool is_moving);

/* Adds up in the order of the device: the upper half of a block to the lower half, again and again. */
void lennard_jones_loops_add_energies(const struct lennard_jones_particles *particles);

#ifdef __cplusplus
}
#endif

#endif
