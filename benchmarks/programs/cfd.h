/*
 * The Euler equations of a gas in three dimensions by finite volumes on an unstructured mesh: what flows through the
 * four faces of each element, central differences with artificial viscosity, three Runge-Kutta stages, local time
 * steps.
 *
 * All arrays of several values for each element hold the first value of all elements, then the second of all, and so
 * on.
 */
#ifndef BENCHMARKS_PROGRAMS_CFD_H
#define BENCHMARKS_PROGRAMS_CFD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cfd_variable {
    CFD_DENSITY,
    CFD_MOMENTUM_X,
    CFD_MOMENTUM_Y,
    CFD_MOMENTUM_Z,
    CFD_ENERGY,
    CFD_VARIABLES,
};

enum {
    CFD_BLOCK = 192,
    CFD_FACES = 4,
    CFD_STAGES = 3,
    CFD_ITERATIONS = 4,
    /* Instead of a neighbour's number: */
    CFD_WALL = -1,
    CFD_FAR = -2,
};

#define CFD_GAMMA        1.4f
#define CFD_VISCOSITY    0.2f
#define CFD_PERTURBATION 0.1f

struct cfd_vector {
    float x, y, z;
};

/* What flows along each axis. */
struct cfd_flow {
    struct cfd_vector momentum_x, momentum_y, momentum_z, energy;
};

struct cfd_far_field {
    float variables[CFD_VARIABLES];
    struct cfd_flow flow;
};

struct cfd_mesh {
    int nr_elements;           /* a multiple of CFD_BLOCK */
    const float *areas;        /* of each element */
    const int32_t *neighbours; /* CFD_FACES for each element */
    const float *normals;      /* CFD_FACES of x, y, z for each element: inward, as long as the face is large */
};

struct cfd_state {
    float *variables, *old_variables, *fluxes; /* CFD_VARIABLES for each element */
    float *step_factors;
};

void cfd_loops_initialize(const struct cfd_mesh *mesh, const struct cfd_state *state, const struct cfd_far_field *far);
void cfd_loops_step_factors(const struct cfd_mesh *mesh, const struct cfd_state *state);
void cfd_loops_fluxes(const struct cfd_mesh *mesh, const struct cfd_state *state, const struct cfd_far_field *far);
void cfd_loops_time_step(const struct cfd_mesh *mesh, const struct cfd_state *state, int stage);

#ifdef __cplusplus
}
#endif

#endif
