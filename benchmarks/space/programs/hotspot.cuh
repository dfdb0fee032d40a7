/* hotspot: temperatures on a chip. A block makes two steps for its tile, out of shared memory that holds two cells more
 * on each side. */
#ifndef BENCHMARKS_SPACE_HOTSPOT_CUH
#define BENCHMARKS_SPACE_HOTSPOT_CUH

#include "program.cuh"

enum { HOTSPOT_EDGE = 32, HOTSPOT_STEPS = 2, HOTSPOT_TILE = HOTSPOT_EDGE - 2 * HOTSPOT_STEPS };

struct hotspot_view {
    int tiles;
    const float *power;
    float *temperatures[2]; /* phases go to and fro */

    __host__ __device__ int edge() const { return tiles * HOTSPOT_TILE; }

    static __host__ __device__ float next(float here, float north, float south, float west, float east, float power)
    {
        return here + 0.1f * (north + south - 2 * here) + 0.1f * (west + east - 2 * here) + 0.05f * power +
               0.001f * (80 - here);
    }

    /* Beyond the border lies what is at the border. */
    __host__ __device__ int inside(int place) const { return place < 0 ? 0 : place < edge() ? place : edge() - 1; }

    __device__ void block(unsigned block, unsigned phase) const
    {
        __shared__ float cells[2][HOTSPOT_EDGE][HOTSPOT_EDGE];
        const int x = threadIdx.x % HOTSPOT_EDGE, column = block % tiles * HOTSPOT_TILE + x - HOTSPOT_STEPS;
        const int first_row = block / tiles * HOTSPOT_TILE - HOTSPOT_STEPS, rows_at_once = THREADS / HOTSPOT_EDGE;
        const float *from = from_of(temperatures, phase);
        for (int y = threadIdx.x / HOTSPOT_EDGE; y < HOTSPOT_EDGE; y += rows_at_once) {
            cells[0][y][x] = from[inside(first_row + y) * edge() + inside(column)];
        }
        for (int step = 0; step < HOTSPOT_STEPS; step++) {
            __syncthreads();
            const float (*now)[HOTSPOT_EDGE] = cells[step % 2];
            for (int y = threadIdx.x / HOTSPOT_EDGE; y < HOTSPOT_EDGE; y += rows_at_once) {
                int row = first_row + y;
                /* the cells that are there, and whose neighbours have come this far */
                bool is_known = x > step && x < HOTSPOT_EDGE - 1 - step && y > step && y < HOTSPOT_EDGE - 1 - step;
                if (is_known && column == inside(column) && row == inside(row)) {
                    int north = inside(row - 1) - first_row, south = inside(row + 1) - first_row;
                    int west = inside(column - 1) - column + x, east = inside(column + 1) - column + x;
                    cells[~step & 1][y][x] = next(now[y][x], now[north][x], now[south][x], now[y][west], now[y][east],
                                                  power[row * edge() + column]);
                }
            }
        }
        __syncthreads();
        const bool is_mine = x >= HOTSPOT_STEPS && x < HOTSPOT_EDGE - HOTSPOT_STEPS;
        for (int y = HOTSPOT_STEPS + threadIdx.x / HOTSPOT_EDGE; is_mine && y < HOTSPOT_EDGE - HOTSPOT_STEPS;
             y += rows_at_once) {
            to_of(temperatures, phase)[(first_row + y) * edge() + column] = cells[HOTSPOT_STEPS % 2][y][x];
        }
    }

    void loops(unsigned phase) const
    {
        std::vector<float> now(from_of(temperatures, phase), from_of(temperatures, phase) + edge() * edge()),
            then(now.size());
        for (int step = 0; step < HOTSPOT_STEPS; step++) {
            for (int row = 0; row < edge(); row++) {
                for (int column = 0; column < edge(); column++) {
                    auto at = [&](int y, int x) { return now[inside(y) * edge() + inside(x)]; };
                    then[row * edge() + column] =
                        next(at(row, column), at(row - 1, column), at(row + 1, column), at(row, column - 1),
                             at(row, column + 1), power[row * edge() + column]);
                }
            }
            std::swap(now, then);
        }
        std::copy(now.begin(), now.end(), to_of(temperatures, phase));
    }
};

/* `size` tiles each way. */
static std::unique_ptr<program> make_hotspot(int size)
{
    auto made = new program_of<hotspot_view>("hotspot", size * size, 4);
    const size_t edge = (size_t)size * HOTSPOT_TILE;
    auto power = made->make<float>(edge * edge);
    auto first = made->make<float>(edge * edge, 1e-5);
    auto second = made->make<float>(edge * edge, 1e-5);
    uint64_t random = 1;
    for (size_t at = 0; at < power.nr; at++) {
        power[HOST][at] = drawn(&random);
        first[HOST][at] = 60 + 40 * drawn(&random);
    }
    return finished(made, [&](int side) { return hotspot_view{size, power[side], {first[side], second[side]}}; });
}

#endif
