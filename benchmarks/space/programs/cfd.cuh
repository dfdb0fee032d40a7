/* cfd: a finite volume step of Euler's equations on a mesh of elements with four faces, numbered out of order. */
#ifndef BENCHMARKS_SPACE_CFD_CUH
#define BENCHMARKS_SPACE_CFD_CUH

#include "program.cuh"

enum { CFD_VARIABLES = 5, CFD_FACES = 4, CFD_EACH = 4, CFD_BLOCK = CFD_EACH * THREADS };

struct cfd_gas {
    float density, x, y, z, energy;
};

struct cfd_view {
    int nr;
    const int *neighbours; /* of each face, for all elements */
    const float *normals;  /* x, y and z of each face's, as long as its area, for all elements */
    float *variables[2];   /* each for all elements; phases go to and fro */

    __host__ __device__ struct cfd_gas gas(const float *from, int at) const
    {
        return {from[at], from[at + nr], from[at + 2 * nr], from[at + 3 * nr], from[at + 4 * nr]};
    }

    static __host__ __device__ float pressure(const struct cfd_gas &gas)
    {
        return 0.4f * (gas.energy - 0.5f * (gas.x * gas.x + gas.y * gas.y + gas.z * gas.z) / gas.density);
    }

    /* What the gas of one side lets through a face, and the speed of its fastest wave there. */
    static __host__ __device__ struct cfd_gas flux(const struct cfd_gas &gas, const float *normal, float area,
                                                   float *speed)
    {
        float through = (gas.x * normal[0] + gas.y * normal[1] + gas.z * normal[2]) / gas.density;
        float pushes = pressure(gas);
        *speed = fabsf(through) + area * sqrtf(1.4f * pushes / gas.density);
        return {gas.density * through, gas.x * through + pushes * normal[0], gas.y * through + pushes * normal[1],
                gas.z * through + pushes * normal[2], (gas.energy + pushes) * through};
    }

    __host__ __device__ void element(int at, unsigned phase) const
    {
        const float *from = from_of(variables, phase);
        float *to = to_of(variables, phase);
        const struct cfd_gas here = gas(from, at);
        struct cfd_gas sum = {0, 0, 0, 0, 0};
        for (int face = 0; face < CFD_FACES; face++) {
            float normal[3];
            for (int axis = 0; axis < 3; axis++) {
                normal[axis] = normals[(face * 3 + axis) * nr + at];
            }
            const struct cfd_gas there = gas(from, neighbours[face * nr + at]);
            float area = sqrtf(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]);
            float speed, other_speed;
            const struct cfd_gas out = flux(here, normal, area, &speed), in = flux(there, normal, area, &other_speed);
            float fastest = fmaxf(speed, other_speed);
            sum.density += out.density + in.density - fastest * (there.density - here.density);
            sum.x += out.x + in.x - fastest * (there.x - here.x);
            sum.y += out.y + in.y - fastest * (there.y - here.y);
            sum.z += out.z + in.z - fastest * (there.z - here.z);
            sum.energy += out.energy + in.energy - fastest * (there.energy - here.energy);
        }
        const float step = 0.05f;
        to[at] = here.density - step * sum.density;
        to[at + nr] = here.x - step * sum.x;
        to[at + 2 * nr] = here.y - step * sum.y;
        to[at + 3 * nr] = here.z - step * sum.z;
        to[at + 4 * nr] = here.energy - step * sum.energy;
    }

    __device__ void block(unsigned block, unsigned phase) const
    {
        for (int each = 0; each < CFD_EACH; each++) {
            element(block * CFD_BLOCK + each * THREADS + threadIdx.x, phase);
        }
    }

    void loops(unsigned phase) const
    {
        for (int at = 0; at < nr; at++) {
            element(at, phase);
        }
    }
};

/* A torus of `size` rows, a block of elements each, whose numbers are shuffled within each row. */
static std::unique_ptr<program> make_cfd(int size)
{
    auto made = new program_of<cfd_view>("cfd", size, 2);
    const int width = CFD_BLOCK, nr = size * width;
    auto neighbours = made->make<int>((size_t)CFD_FACES * nr);
    auto normals = made->make<float>((size_t)3 * CFD_FACES * nr);
    auto first = made->make<float>((size_t)CFD_VARIABLES * nr, 1e-5);
    auto second = made->make<float>((size_t)CFD_VARIABLES * nr, 1e-5);
    uint64_t random = 1;
    std::vector<int> number(nr);
    for (int at = 0; at < nr; at++) {
        number[at] = at;
        int row = at / width * width;
        std::swap(number[at], number[row + (int)(drawn(&random) * (float)(at - row + 1))]);
    }
    const float face_normals[CFD_FACES][3] = {
        {0.9f, 0.3f, 0.2f}, {-0.9f, -0.3f, -0.2f}, {-0.3f, 0.9f, 0.1f}, {0.3f, -0.9f, -0.1f}};
    const float far[CFD_VARIABLES] = {1.4f, 0.5f, 0.2f, 0.1f, 3.0f};
    for (int at = 0; at < nr; at++) {
        int x = at % width, y = at / width;
        int others[CFD_FACES] = {y * width + (x + 1) % width, y * width + (x + width - 1) % width,
                                 (y + 1) % size * width + x, (y + size - 1) % size * width + x};
        for (int face = 0; face < CFD_FACES; face++) {
            neighbours[HOST][face * nr + number[at]] = number[others[face]];
            for (int axis = 0; axis < 3; axis++) {
                normals[HOST][(face * 3 + axis) * nr + number[at]] = face_normals[face][axis];
            }
        }
        for (int variable = 0; variable < CFD_VARIABLES; variable++) {
            first[HOST][variable * nr + number[at]] = far[variable] * (1 + 0.1f * drawn(&random));
        }
    }
    return finished(
        made, [&](int side) { return cfd_view{nr, neighbours[side], normals[side], {first[side], second[side]}}; });
}

#endif
