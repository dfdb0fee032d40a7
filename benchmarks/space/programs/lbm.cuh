/* lbm: a step of a lattice Boltzmann flow in two dimensions, nine directions, pulled from the neighbours; the domain is
 * a torus. */
#ifndef BENCHMARKS_SPACE_LBM_CUH
#define BENCHMARKS_SPACE_LBM_CUH

#include "program.cuh"

enum { LBM_DIRECTIONS = 9, LBM_WIDTH = 1024, LBM_EACH = 4, LBM_BLOCK = LBM_EACH * THREADS };

struct lbm_view {
    int height;
    float *flows[2]; /* of each direction, for all cells; phases go to and fro */

    static __host__ __device__ float weight(int direction)
    {
        return direction == 0 ? 4.0f / 9 : direction <= 4 ? 1.0f / 9 : 1.0f / 36;
    }

    __host__ __device__ void cell(int at, unsigned phase) const
    {
        const int across[LBM_DIRECTIONS] = {0, 1, 0, -1, 0, 1, -1, -1, 1},
                  down[LBM_DIRECTIONS] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
        const float *from = from_of(flows, phase);
        float *to = to_of(flows, phase);
        const int x = at % LBM_WIDTH, y = at / LBM_WIDTH, nr = height * LBM_WIDTH;
        float pulled[LBM_DIRECTIONS], density = 0, east = 0, south = 0;
#pragma unroll
        for (int each = 0; each < LBM_DIRECTIONS; each++) {
            int there_x = (x - across[each] + LBM_WIDTH) % LBM_WIDTH, there_y = (y - down[each] + height) % height;
            pulled[each] = from[each * nr + there_y * LBM_WIDTH + there_x];
            density += pulled[each];
            east += (float)across[each] * pulled[each];
            south += (float)down[each] * pulled[each];
        }
        east /= density;
        south /= density;
        const float squares = 1.5f * (east * east + south * south);
#pragma unroll
        for (int each = 0; each < LBM_DIRECTIONS; each++) {
            float along = 3 * ((float)across[each] * east + (float)down[each] * south);
            float settled = weight(each) * density * (1 + along + 0.5f * along * along - squares);
            to[each * nr + at] = pulled[each] + 0.6f * (settled - pulled[each]);
        }
    }

    __device__ void block(unsigned block, unsigned phase) const
    {
        for (int each = 0; each < LBM_EACH; each++) {
            cell(block * LBM_BLOCK + each * THREADS + threadIdx.x, phase);
        }
    }

    void loops(unsigned phase) const
    {
        for (int at = 0; at < height * LBM_WIDTH; at++) {
            cell(at, phase);
        }
    }
};

/* `size` rows, a block each. */
static std::unique_ptr<program> make_lbm(int size)
{
    auto made = new program_of<lbm_view>("lbm", size, 6);
    const size_t nr = (size_t)size * LBM_WIDTH;
    auto first = made->make<float>(LBM_DIRECTIONS * nr, 1e-5);
    auto second = made->make<float>(LBM_DIRECTIONS * nr, 1e-5);
    uint64_t random = 1;
    for (size_t at = 0; at < first.nr; at++) {
        first[HOST][at] = lbm_view::weight((int)(at / nr)) * (1 + 0.1f * drawn(&random));
    }
    return finished(made, [&](int side) { return lbm_view{size, {first[side], second[side]}}; });
}

#endif
