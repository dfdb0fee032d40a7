/*
 * Chains of a self-organized polymer (Hyeon, Dima and Thirumalai, 2006): each residue of a protein is one bead. Bonds
 * between neighbours stretch by a finite length (FENE), contacts of the native structure, a helix here, attract, and
 * all beads that have no bond repel each other. Water moves beads at random and takes their momentum away at once
 * (Brownian dynamics). Lengths are in angstrom, energies in kcal/mol.
 *
 * The water's noise is uniform, with the mean and the variance of a normal distribution, which is all that steps of
 * first order need (Duenweg and Paul, "Brownian dynamics simulations without Gaussian random numbers", 1991).
 */
#ifndef BENCHMARKS_PROGRAMS_LANGEVIN_H
#define BENCHMARKS_PROGRAMS_LANGEVIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LANGEVIN_BEADS = 128,  /* of a chain */
    LANGEVIN_CONTACTS = 4, /* of a bead, at most: those 3 and 4 further on and back in the helix */
    LANGEVIN_STEPS = 200,  /* in a row */
};

#define LANGEVIN_SPRING   20.0f
#define LANGEVIN_STRETCH  2.0f /* a bond's, which it never reaches */
#define LANGEVIN_WELL     1.5f /* of a contact */
#define LANGEVIN_DIAMETER 3.8f
#define LANGEVIN_RANGE    8.0f       /* of contacts, and of the repulsion */
#define LANGEVIN_MOBILITY 0.0025f    /* how far a force moves a bead in a step: the step over the friction */
#define LANGEVIN_KT       0.6f       /* at 302 K */
#define LANGEVIN_NOISE    0.1897366f /* sqrt(24 kT mobility): 12 as the variance of a number from -0.5 to 0.5 is 1/12 */

/* Bead b of chain c is the one numbered c * LANGEVIN_BEADS + b. */
struct langevin_vector {
    float x, y, z, unused;
};

/* The native structure, the same for all chains. */
struct langevin_native {
    float bonds[LANGEVIN_BEADS]; /* length of the bond to the next bead; 0 of the last */
    int32_t nr_contacts[LANGEVIN_BEADS];
    int32_t contacts[LANGEVIN_CONTACTS][LANGEVIN_BEADS]; /* beads */
    float squares[LANGEVIN_CONTACTS][LANGEVIN_BEADS];    /* of their distances */
};

struct langevin_chains {
    int nr_chains;
    const struct langevin_native *native;
    struct langevin_vector *places, *forces;
};

void langevin_loops_act(const struct langevin_chains *chains);
void langevin_loops_integrate(const struct langevin_chains *chains, uint32_t step);

#ifdef __CUDACC__
#define LANGEVIN_BOTH static inline __host__ __device__
#else
#define LANGEVIN_BOTH static inline
#endif

/* 64 random bits of a bead in a step: SplitMix64 at the place that both of them number. */
LANGEVIN_BOTH uint64_t langevin_random(uint32_t step, uint32_t bead)
{
    uint64_t mixed = (((uint64_t)step << 32 | bead) + 1) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* 21 of these bits for each axis, as a number from -0.5 on and below 0.5, which is exact. */
LANGEVIN_BOTH float langevin_noise(uint64_t random, int axis)
{
    return (float)(int32_t)(random >> (21 * axis) & 0x1fffff) * 0x1p-21f - 0.5f;
}

#ifdef __cplusplus
}
#endif

#endif
