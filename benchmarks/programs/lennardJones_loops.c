/* The kernels of lennardJones.cu as plain loops, and where particles begin. */
#include <math.h>
#include <stddef.h>

#include "common.h"
#include "lennardJones.h"

/* Face-centred cubic: two cubes, with four particles each, along each edge of a cell. */
static struct lennard_jones_vector place_of(size_t particle, size_t edge)
{
    static const float OFFSETS[4][3] = {
        {0.25f, 0.25f, 0.25f}, {0.75f, 0.75f, 0.25f}, {0.75f, 0.25f, 0.75f}, {0.25f, 0.75f, 0.75f}};
    const float cube = LENNARD_JONES_CELL_EDGE / 2;
    const float *offset = OFFSETS[particle % 4];
    size_t at = particle / 4, along = 2 * edge;
    return (struct lennard_jones_vector){cube * (at % along + offset[0]), cube * (at / along % along + offset[1]),
                                         cube * (at / along / along + offset[2]), 0};
}

/* Along each axis between -sqrt(3) and sqrt(3), which is temperature 1. */
static float draw_velocity(uint64_t *random)
{
    return sqrtf(3) * (2 * benchmark_random_float(random) - 1);
}

/* All particles together stand still. */
void lennard_jones_generate(int edge, struct lennard_jones_vector *places, struct lennard_jones_vector *velocities)
{
    const size_t nr_particles = (size_t)edge * edge * edge * LENNARD_JONES_CELL_PARTICLES;
    uint64_t random = 1;
    double x = 0, y = 0, z = 0;
    for (size_t at = 0; at < nr_particles; at++) {
        places[at] = place_of(at, edge);
        x += velocities[at].x = draw_velocity(&random);
        y += velocities[at].y = draw_velocity(&random);
        z += velocities[at].z = draw_velocity(&random);
    }
    for (size_t at = 0; at < nr_particles; at++) {
        velocities[at].x -= x / nr_particles;
        velocities[at].y -= y / nr_particles;
        velocities[at].z -= z / nr_particles;
    }
}

/* Adds what the particles from `begin` to `end` do to the one at `home`. */
static void act(const struct lennard_jones_particles *particles, int begin, int end, int particle,
                const struct lennard_jones_vector *home, struct lennard_jones_vector *force)
{
    for (int other = begin; other < end; other++) {
        float x = home->x - particles->places[other].x;
        float y = home->y - particles->places[other].y;
        float z = home->z - particles->places[other].z;
        float square = x * x + y * y + z * z;
        if (square >= LENNARD_JONES_CUTOFF * LENNARD_JONES_CUTOFF || other == particle) {
            continue;
        }
        float inverse = 1 / square;
        float sixth = inverse * inverse * inverse;
        float strength = 24 * inverse * sixth * (2 * sixth - 1);
        force->x += strength * x;
        force->y += strength * y;
        force->z += strength * z;
        force->potential += 2 * (sixth * (sixth - 1)) - LENNARD_JONES_AT_CUTOFF / 2;
    }
}

/* How many cubes further on the cell beyond an edge is one of this cube; it is put back to where it is here. */
static int wrap(int *cell, int edge)
{
    int cubes = *cell < 0 ? -1 : *cell >= edge;
    *cell -= cubes * edge;
    return cubes;
}

static void act_on(const struct lennard_jones_particles *particles, int particle)
{
    const int edge = particles->edge, cell = particles->cells[particle];
    const float cube = edge * LENNARD_JONES_CELL_EDGE;
    const struct lennard_jones_vector *place = particles->places + particle;
    struct lennard_jones_vector force = {0};
    for (int at = 0; at < 27; at++) {
        int x = cell % edge + at % 3 - 1, y = cell / edge % edge + at / 3 % 3 - 1, z = cell / edge / edge + at / 9 - 1;
        int cubes_x = wrap(&x, edge), cubes_y = wrap(&y, edge), cubes_z = wrap(&z, edge);
        const struct lennard_jones_vector home = {place->x - cubes_x * cube, place->y - cubes_y * cube,
                                                  place->z - cubes_z * cube, 0};
        const int32_t *begin = particles->begins + (z * edge + y) * edge + x;
        act(particles, begin[0], begin[1], particle, &home, &force);
    }
    particles->forces[particle] = force;
}

void lennard_jones_loops_act(const struct lennard_jones_particles *particles)
{
#pragma omp parallel for
    for (int particle = 0; particle < particles->nr_particles; particle++) {
        act_on(particles, particle);
    }
}

void lennard_jones_loops_integrate(const struct lennard_jones_particles *particles, bool is_moving)
{
#pragma omp parallel for
    for (int particle = 0; particle < particles->nr_particles; particle++) {
        const struct lennard_jones_vector *force = particles->forces + particle;
        struct lennard_jones_vector *velocity = particles->velocities + particle, *place = particles->places + particle;
        velocity->x += LENNARD_JONES_STEP / 2 * force->x;
        velocity->y += LENNARD_JONES_STEP / 2 * force->y;
        velocity->z += LENNARD_JONES_STEP / 2 * force->z;
        if (is_moving) {
            place->x += LENNARD_JONES_STEP * velocity->x;
            place->y += LENNARD_JONES_STEP * velocity->y;
            place->z += LENNARD_JONES_STEP * velocity->z;
        }
    }
}

static float energy_of(const struct lennard_jones_particles *particles, int particle)
{
    const struct lennard_jones_vector *velocity = particles->velocities + particle;
    float square = velocity->x * velocity->x + velocity->y * velocity->y + velocity->z * velocity->z;
    return particles->forces[particle].potential + square / 2;
}

void lennard_jones_loops_add_energies(const struct lennard_jones_particles *particles)
{
#pragma omp parallel for
    for (int first = 0; first < particles->nr_particles; first += LENNARD_JONES_BLOCK) {
        float energies[LENNARD_JONES_BLOCK] = {0};
        for (int at = 0; at < LENNARD_JONES_BLOCK && first + at < particles->nr_particles; at++) {
            energies[at] = energy_of(particles, first + at);
        }
        for (int half = LENNARD_JONES_BLOCK / 2; half > 0; half /= 2) {
            for (int at = 0; at < half; at++) {
                energies[at] += energies[at + half];
            }
        }
        particles->energies[first / LENNARD_JONES_BLOCK] = energies[0];
    }
}
