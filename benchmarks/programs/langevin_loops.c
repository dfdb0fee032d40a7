/* The kernels of langevin.cu as plain loops, chain for chain. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "langevin.h"

static struct langevin_vector between(const struct langevin_vector *to, const struct langevin_vector *from)
{
    return (struct langevin_vector){to->x - from->x, to->y - from->y, to->z - from->z, 0};
}

static float square_of(const struct langevin_vector *apart)
{
    return apart->x * apart->x + apart->y * apart->y + apart->z * apart->z;
}

static void add(struct langevin_vector *force, float strength, const struct langevin_vector *apart)
{
    force->x += strength * apart->x;
    force->y += strength * apart->y;
    force->z += strength * apart->z;
}

static void add_bond(struct langevin_vector *force, const struct langevin_vector *here,
                     const struct langevin_vector *there, float length)
{
    const struct langevin_vector apart = between(here, there);
    float distance = sqrtf(square_of(&apart)), stretch = distance - length;
    float left = 1 - stretch * stretch / (LANGEVIN_STRETCH * LANGEVIN_STRETCH);
    add(force, -LANGEVIN_SPRING * stretch / (left * distance), &apart);
}

static void add_contact(struct langevin_vector *force, const struct langevin_vector *here,
                        const struct langevin_vector *there, float native_square)
{
    const struct langevin_vector apart = between(here, there);
    float square = square_of(&apart), ratio = native_square / square;
    float sixth = ratio * ratio * ratio;
    add(force, 12 * LANGEVIN_WELL / square * sixth * (sixth - 1), &apart);
}

static void add_repulsion(struct langevin_vector *force, const struct langevin_vector *here,
                          const struct langevin_vector *there)
{
    const struct langevin_vector apart = between(here, there);
    float square = square_of(&apart);
    if (square < LANGEVIN_RANGE * LANGEVIN_RANGE) {
        float ratio = LANGEVIN_DIAMETER * LANGEVIN_DIAMETER / square;
        add(force, 6 / square * (ratio * ratio * ratio), &apart);
    }
}

static struct langevin_vector force_on(const struct langevin_native *native, const struct langevin_vector *places,
                                       int bead)
{
    const struct langevin_vector *here = places + bead;
    struct langevin_vector force = {0};
    if (bead > 0) {
        add_bond(&force, here, here - 1, native->bonds[bead - 1]);
    }
    if (bead < LANGEVIN_BEADS - 1) {
        add_bond(&force, here, here + 1, native->bonds[bead]);
    }
    for (int at = 0; at < native->nr_contacts[bead]; at++) {
        add_contact(&force, here, places + native->contacts[at][bead], native->squares[at][bead]);
    }
    for (int other = 0; other < LANGEVIN_BEADS; other++) {
        if (abs(other - bead) > 1) {
            add_repulsion(&force, here, places + other);
        }
    }
    return force;
}

void langevin_loops_act(const struct langevin_chains *chains)
{
#pragma omp parallel for
    for (int chain = 0; chain < chains->nr_chains; chain++) {
        size_t first = (size_t)chain * LANGEVIN_BEADS;
        for (int bead = 0; bead < LANGEVIN_BEADS; bead++) {
            chains->forces[first + bead] = force_on(chains->native, chains->places + first, bead);
        }
    }
}

void langevin_loops_integrate(const struct langevin_chains *chains, uint32_t step)
{
#pragma omp parallel for
    for (int bead = 0; bead < chains->nr_chains * LANGEVIN_BEADS; bead++) {
        const struct langevin_vector *force = chains->forces + bead;
        struct langevin_vector *place = chains->places + bead;
        uint64_t random = langevin_random(step, bead);
        place->x += LANGEVIN_MOBILITY * force->x + LANGEVIN_NOISE * langevin_noise(random, 0);
        place->y += LANGEVIN_MOBILITY * force->y + LANGEVIN_NOISE * langevin_noise(random, 1);
        place->z += LANGEVIN_MOBILITY * force->z + LANGEVIN_NOISE * langevin_noise(random, 2);
    }
}
