/* md: forces of Lennard-Jones between atoms, each with a list of neighbours, of which those beyond the cutoff are left
 * out. */
#ifndef BENCHMARKS_SPACE_MD_CUH
#define BENCHMARKS_SPACE_MD_CUH

#include "program.cuh"

enum { MD_NEIGHBOURS = 64 };

struct md_atom {
    float x, y, z, padding;
};

struct md_view {
    int nr;
    float edge;            /* of the periodic box */
    const int *neighbours; /* the first of all atoms, the second of all, ... */
    const struct md_atom *atoms;
    struct md_atom *forces;

    __host__ __device__ float nearest(float distance) const
    {
        return distance - edge * (float)((distance > edge / 2) - (distance < -edge / 2));
    }

    __host__ __device__ void atom(int at) const
    {
        const struct md_atom here = atoms[at];
        struct md_atom force = {0, 0, 0, 0};
        for (int number = 0; number < MD_NEIGHBOURS; number++) {
            const struct md_atom there = atoms[neighbours[number * nr + at]];
            float x = nearest(here.x - there.x), y = nearest(here.y - there.y), z = nearest(here.z - there.z);
            float square = x * x + y * y + z * z;
            if (square < 4.0f) {
                float inverse = 1 / square, sixth = inverse * inverse * inverse;
                float strength = inverse * sixth * (2 * sixth - 1);
                force.x += strength * x;
                force.y += strength * y;
                force.z += strength * z;
            }
        }
        forces[at] = force;
    }

    __device__ void block(unsigned block, unsigned) const { atom(block * THREADS + threadIdx.x); }

    void loops(unsigned) const
    {
        for (int at = 0; at < nr; at++) {
            atom(at);
        }
    }
};

/* The places of a lattice that are nearest to one of it, itself left out. */
static std::vector<std::vector<int>> md_offsets(void)
{
    std::vector<std::vector<int>> found;
    for (int at = 0; at < 343; at++) {
        int x = at % 7 - 3, y = at / 7 % 7 - 3, z = at / 49 - 3;
        if (at != 171) {
            found.push_back({x * x + y * y + z * z, x, y, z});
        }
    }
    std::sort(found.begin(), found.end());
    found.resize(MD_NEIGHBOURS);
    return found;
}

/* A lattice of `size` atoms each way, each shifted a little. */
static std::unique_ptr<program> make_md(int size)
{
    const int nr = size * size * size;
    auto made = new program_of<md_view>("md", nr / THREADS, 1);
    auto neighbours = made->make<int>((size_t)MD_NEIGHBOURS * nr);
    auto atoms = made->make<struct md_atom>(nr);
    auto forces = made->make<struct md_atom>(nr, 1e-4);
    const auto offsets = md_offsets();
    uint64_t random = 1;
    for (int at = 0; at < nr; at++) {
        int x = at % size, y = at / size % size, z = at / size / size;
        auto place = [&](int index) { return (float)index + 0.2f * drawn(&random); };
        atoms[HOST][at] = {place(x), place(y), place(z), 0};
        for (int number = 0; number < MD_NEIGHBOURS; number++) {
            auto moved = [&](int index, int axis) { return (index + offsets[number][axis] + size) % size; };
            neighbours[HOST][number * nr + at] = (moved(z, 3) * size + moved(y, 2)) * size + moved(x, 1);
        }
    }
    return finished(made,
                    [&](int side) { return md_view{nr, (float)size, neighbours[side], atoms[side], forces[side]}; });
}

#endif
