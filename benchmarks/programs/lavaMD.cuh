/* The kernel of lavaMD: what one block does, whatever it was launched by. The last access to its shared memory is
 * behind a barrier. */
#ifndef BENCHMARKS_PROGRAMS_LAVAMD_CUH
#define BENCHMARKS_PROGRAMS_LAVAMD_CUH

#include "lavaMD.h"

enum { LAVAMD_THREADS = 128 };

static __device__ void lavamd_block(const struct lavamd_space &space, int block)
{
    __shared__ struct lavamd_vector home[LAVAMD_PARTICLES], others[LAVAMD_PARTICLES];
    __shared__ float charges[LAVAMD_PARTICLES];
    const struct lavamd_box *box = space.boxes + block;
    const float twice_alpha_squared = 2 * LAVAMD_ALPHA * LAVAMD_ALPHA;
    struct lavamd_vector *forces = space.forces + block * LAVAMD_PARTICLES;

    for (int at = threadIdx.x; at < LAVAMD_PARTICLES; at += LAVAMD_THREADS) {
        home[at] = space.particles[block * LAVAMD_PARTICLES + at];
        forces[at] = {0, 0, 0, 0};
    }
    for (int neighbour = -1; neighbour < box->nr_neighbours; neighbour++) {
        int first = (neighbour < 0 ? block : box->neighbours[neighbour]) * LAVAMD_PARTICLES;
        for (int at = threadIdx.x; at < LAVAMD_PARTICLES; at += LAVAMD_THREADS) {
            others[at] = space.particles[first + at];
            charges[at] = space.charges[first + at];
        }
        __syncthreads();
        for (int at = threadIdx.x; at < LAVAMD_PARTICLES; at += LAVAMD_THREADS) {
            struct lavamd_vector force = forces[at];
            for (int other = 0; other < LAVAMD_PARTICLES; other++) {
                float dot = home[at].x * others[other].x + home[at].y * others[other].y + home[at].z * others[other].z;
                float half_square = home[at].v + others[other].v - dot;
                float potential = expf(-twice_alpha_squared * half_square);
                float strength = 2 * potential;
                force.v += charges[other] * potential;
                force.x += charges[other] * (strength * (home[at].x - others[other].x));
                force.y += charges[other] * (strength * (home[at].y - others[other].y));
                force.z += charges[other] * (strength * (home[at].z - others[other].z));
            }
            forces[at] = force;
        }
        __syncthreads();
    }
}

#endif
