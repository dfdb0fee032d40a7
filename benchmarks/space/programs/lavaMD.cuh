/* lavaMD: potentials between the particles of a box and of the 26 around it. Four threads share a particle. */
#ifndef BENCHMARKS_SPACE_LAVAMD_CUH
#define BENCHMARKS_SPACE_LAVAMD_CUH

#include "program.cuh"

enum { LAVA_PARTICLES = 64, LAVA_SHARES = THREADS / LAVA_PARTICLES };

struct lava_particle {
    float x, y, z, charge;
};

struct lava_view {
    int edge; /* in boxes, of a torus */
    const struct lava_particle *particles;
    struct lava_particle *forces; /* the potential where a particle has its charge */

    __host__ __device__ int neighbour(int box, int number) const
    {
        int x = (box % edge + number % 3 + edge - 1) % edge, y = (box / edge % edge + number / 3 % 3 + edge - 1) % edge;
        return ((box / edge / edge + number / 9 + edge - 1) % edge * edge + y) * edge + x;
    }

    static __host__ __device__ void add(struct lava_particle *force, const struct lava_particle &here,
                                        const struct lava_particle &there)
    {
        float x = here.x - there.x, y = here.y - there.y, z = here.z - there.z;
        float potential = there.charge * expf(-0.5f * (x * x + y * y + z * z));
        force->charge += potential;
        force->x += potential * x;
        force->y += potential * y;
        force->z += potential * z;
    }

    __device__ void block(unsigned block, unsigned) const
    {
        __shared__ struct lava_particle others[LAVA_PARTICLES];
        const int at = threadIdx.x / LAVA_SHARES, share = threadIdx.x % LAVA_SHARES;
        const struct lava_particle here = particles[block * LAVA_PARTICLES + at];
        struct lava_particle force = {0, 0, 0, 0};
        for (int number = 0; number < 27; number++) {
            __syncthreads();
            if (threadIdx.x < LAVA_PARTICLES) {
                others[threadIdx.x] = particles[neighbour(block, number) * LAVA_PARTICLES + threadIdx.x];
            }
            __syncthreads();
            for (int other = share; other < LAVA_PARTICLES; other += LAVA_SHARES) {
                add(&force, here, others[other]);
            }
        }
        for (int distance = LAVA_SHARES / 2; distance > 0; distance /= 2) {
            force.x += __shfl_xor_sync(~0u, force.x, distance);
            force.y += __shfl_xor_sync(~0u, force.y, distance);
            force.z += __shfl_xor_sync(~0u, force.z, distance);
            force.charge += __shfl_xor_sync(~0u, force.charge, distance);
        }
        if (share == 0) {
            forces[block * LAVA_PARTICLES + at] = force;
        }
    }

    void loops(unsigned) const
    {
        for (int at = 0; at < edge * edge * edge * LAVA_PARTICLES; at++) {
            struct lava_particle force = {0, 0, 0, 0};
            for (int number = 0; number < 27; number++) {
                const struct lava_particle *others =
                    particles + neighbour(at / LAVA_PARTICLES, number) * LAVA_PARTICLES;
                for (int other = 0; other < LAVA_PARTICLES; other++) {
                    add(&force, particles[at], others[other]);
                }
            }
            forces[at] = force;
        }
    }
};

/* `size` boxes each way. A sum has 1,728 terms below 1: roundings add up to some 1e-5 of it. */
static std::unique_ptr<program> make_lava(int size)
{
    const int nr_boxes = size * size * size;
    auto made = new program_of<lava_view>("lavaMD", nr_boxes, 1);
    auto particles = made->make<struct lava_particle>((size_t)nr_boxes * LAVA_PARTICLES);
    auto forces = made->make<struct lava_particle>(particles.nr, 5e-4);
    uint64_t random = 1;
    for (size_t at = 0; at < particles.nr; at++) {
        particles[HOST][at] = {drawn(&random), drawn(&random), drawn(&random), drawn(&random)};
    }
    return finished(made, [&](int side) { return lava_view{size, particles[side], forces[side]}; });
}

#endif
