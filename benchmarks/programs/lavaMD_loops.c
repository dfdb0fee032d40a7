/* The kernel of lavaMD.cu as plain loops, box for box. */
#include <math.h>
#include <stddef.h>

#include "lavaMD.h"

static const float TWICE_ALPHA_SQUARED = 2 * LAVAMD_ALPHA * LAVAMD_ALPHA;

/* Adds what the particles of one box do to one particle. */
static void act(const struct lavamd_vector *others, const float *charges, const struct lavamd_vector *particle,
                struct lavamd_vector *total)
{
    const struct lavamd_vector home = *particle;
    struct lavamd_vector force = *total;
    for (int at = 0; at < LAVAMD_PARTICLES; at++) {
        const struct lavamd_vector *other = others + at;
        float dot = home.x * other->x + home.y * other->y + home.z * other->z;
        float half_square = home.v + other->v - dot;
        float potential = expf(-TWICE_ALPHA_SQUARED * half_square);
        float strength = 2 * potential;
        force.v += charges[at] * potential;
        force.x += charges[at] * (strength * (home.x - other->x));
        force.y += charges[at] * (strength * (home.y - other->y));
        force.z += charges[at] * (strength * (home.z - other->z));
    }
    *total = force;
}

static void fill_box(const struct lavamd_space *space, int box)
{
    const struct lavamd_box *home = space->boxes + box;
    struct lavamd_vector forces[LAVAMD_PARTICLES] = {0};
    for (int neighbour = -1; neighbour < home->nr_neighbours; neighbour++) {
        size_t other = (size_t)(neighbour < 0 ? box : home->neighbours[neighbour]) * LAVAMD_PARTICLES;
        for (int at = 0; at < LAVAMD_PARTICLES; at++) {
            act(space->particles + other, space->charges + other, space->particles + box * LAVAMD_PARTICLES + at,
                forces + at);
        }
    }
    for (int at = 0; at < LAVAMD_PARTICLES; at++) {
        space->forces[box * LAVAMD_PARTICLES + at] = forces[at];
    }
}

void lavamd_loops(const struct lavamd_space *space)
{
#pragma omp parallel for schedule(dynamic)
    for (int box = 0; box < space->nr_boxes; box++) {
        fill_box(space, box);
    }
}
