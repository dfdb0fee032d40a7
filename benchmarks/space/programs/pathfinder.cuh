/* pathfinder: the cheapest way down a grid, a step of which leads straight or aslant. A phase makes PATH_STEPS rows at
 * once. */
#ifndef BENCHMARKS_SPACE_PATHFINDER_CUH
#define BENCHMARKS_SPACE_PATHFINDER_CUH

#include "program.cuh"

enum { PATH_STEPS = 16, PATH_TILE = THREADS - 2 * PATH_STEPS, PATH_PHASES = 8 };

struct path_view {
    int width;
    const int *costs; /* of PATH_STEPS rows for each phase */
    int *ways[2];     /* what the cheapest way to each column has cost; phases go to and fro */

    __host__ __device__ int inside(int column) const { return column < 0 ? 0 : column < width ? column : width - 1; }

    static __host__ __device__ int least(int left, int middle, int right)
    {
        int sides = left < right ? left : right;
        return sides < middle ? sides : middle;
    }

    __device__ void block(unsigned block, unsigned phase) const
    {
        __shared__ int now[2][THREADS];
        const int x = threadIdx.x, column = block * PATH_TILE + x - PATH_STEPS;
        const bool is_there = column == inside(column);
        now[0][x] = from_of(ways, phase)[inside(column)];
        for (int step = 0; step < PATH_STEPS; step++) {
            __syncthreads();
            if (is_there && x > step && x < THREADS - 1 - step) {
                const int *before = now[step % 2];
                int left = x + inside(column - 1) - column, right = x + inside(column + 1) - column;
                int cost = costs[(size_t)(phase * PATH_STEPS + step) * width + column];
                now[~step & 1][x] = cost + least(before[left], before[x], before[right]);
            }
        }
        __syncthreads();
        if (is_there && x >= PATH_STEPS && x < THREADS - PATH_STEPS) {
            to_of(ways, phase)[column] = now[PATH_STEPS % 2][x];
        }
    }

    void loops(unsigned phase) const
    {
        std::vector<int> now(from_of(ways, phase), from_of(ways, phase) + width), then(width);
        for (int step = 0; step < PATH_STEPS; step++) {
            for (int column = 0; column < width; column++) {
                then[column] = costs[(size_t)(phase * PATH_STEPS + step) * width + column] +
                               least(now[inside(column - 1)], now[column], now[inside(column + 1)]);
            }
            std::swap(now, then);
        }
        std::copy(now.begin(), now.end(), to_of(ways, phase));
    }
};

/* `size` blocks of columns. */
static std::unique_ptr<program> make_path(int size)
{
    auto made = new program_of<path_view>("pathfinder", size, PATH_PHASES);
    const int width = size * PATH_TILE;
    auto costs = made->make<int>((size_t)PATH_PHASES * PATH_STEPS * width);
    auto first = made->make<int>(width);
    auto second = made->make<int>(width);
    uint64_t random = 1;
    for (size_t at = 0; at < costs.nr; at++) {
        costs[HOST][at] = (int)(10 * drawn(&random));
    }
    return finished(made, [&](int side) { return path_view{width, costs[side], {first[side], second[side]}}; });
}

#endif
