/*
 * pathfinder of Rodinia, written anew: few launches, each over the whole width, between the copies of one run.
 * Integers only, so the results must be equal.
 */
#include "pathfinder.h"

#include <climits>
#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

static struct {
    int nr_columns;
    int32_t *wall; /* PATHFINDER_ROWS x nr_columns */
    int32_t *loops_costs[2], *device_costs;
    int32_t *on_device_wall, *on_device_costs[2];
    int32_t *loops_result;
} grid;

static __global__ void advance_rows(struct pathfinder_advance advance)
{
    __shared__ int32_t before[PATHFINDER_BLOCK], after[PATHFINDER_BLOCK];
    int at = threadIdx.x;
    int begin = blockIdx.x * PATHFINDER_BLOCK_WIDTH - PATHFINDER_BLOCK_ROWS;
    int first = max(0, -begin), last = min(PATHFINDER_BLOCK, advance.nr_columns - begin) - 1;
    int left = max(at - 1, first), right = min(at + 1, last);
    bool is_inside = at >= first && at <= last;

    if (is_inside) {
        before[at] = advance.from[begin + at];
    }
    __syncthreads();
    for (int row = 0; row < advance.nr_rows; row++) {
        bool is_computed = is_inside && at >= row + 1 && at <= PATHFINDER_BLOCK - 2 - row;
        if (is_computed) {
            int32_t cheapest = min(min(before[left], before[at]), before[right]);
            after[at] = cheapest + advance.wall[(size_t)row * advance.nr_columns + begin + at];
        }
        __syncthreads();
        if (is_computed) {
            before[at] = after[at];
        }
        __syncthreads();
    }
    bool is_answer = at >= PATHFINDER_BLOCK_ROWS && at < PATHFINDER_BLOCK - PATHFINDER_BLOCK_ROWS;
    if (is_inside && is_answer) {
        advance.to[begin + at] = before[at];
    }
}

static size_t wall_bytes(void)
{
    return (size_t)PATHFINDER_ROWS * grid.nr_columns * sizeof(int32_t);
}

static size_t row_bytes(void)
{
    return grid.nr_columns * sizeof(int32_t);
}

static void prepare_device(void)
{
    grid.device_costs = (int32_t *)benchmark_allocate(grid.nr_columns, sizeof(int32_t));
    BENCHMARK_CUDA(cudaMalloc(&grid.on_device_wall, wall_bytes()));
    for (int32_t *&costs : grid.on_device_costs) {
        BENCHMARK_CUDA(cudaMalloc(&costs, row_bytes()));
    }
}

static double prepare(size_t size)
{
    if (size > INT_MAX / 2 / PATHFINDER_ROWS) {
        benchmark_fail("at most %d columns", INT_MAX / 2 / PATHFINDER_ROWS);
    }
    grid.nr_columns = (int)size;
    grid.wall = (int32_t *)benchmark_allocate(size * PATHFINDER_ROWS, sizeof(int32_t));
    uint64_t random = 1;
    for (size_t at = 0; at < size * PATHFINDER_ROWS; at++) {
        grid.wall[at] = benchmark_random(&random) % 10;
    }
    for (int32_t *&costs : grid.loops_costs) {
        costs = (int32_t *)benchmark_allocate(size, sizeof(int32_t));
    }
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return size * (PATHFINDER_ROWS - 1) * 1e-6;
}

/* Goes down the grid with one `advance` at a time; returns where the costs of the last row are. */
static int32_t *descend(const int32_t *wall, int32_t *const costs[2], void (*run)(const struct pathfinder_advance *))
{
    struct pathfinder_advance advance = {NULL, wall, costs[0], 0, grid.nr_columns};
    for (int row = 1; row < PATHFINDER_ROWS; row += advance.nr_rows) {
        advance.wall = wall + (size_t)row * grid.nr_columns;
        advance.nr_rows = PATHFINDER_ROWS - row;
        if (advance.nr_rows > PATHFINDER_BLOCK_ROWS) {
            advance.nr_rows = PATHFINDER_BLOCK_ROWS;
        }
        run(&advance);
        advance.from = advance.to;
        advance.to = costs[advance.to == costs[0]];
    }
    return (int32_t *)advance.from;
}

static void launch(const struct pathfinder_advance *advance)
{
    int nr_blocks = (grid.nr_columns + PATHFINDER_BLOCK_WIDTH - 1) / PATHFINDER_BLOCK_WIDTH;
    advance_rows<<<nr_blocks, PATHFINDER_BLOCK>>>(*advance);
    BENCHMARK_CUDA(cudaGetLastError());
}

static void device_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(grid.on_device_wall, grid.wall, wall_bytes(), cudaMemcpyHostToDevice));
    int32_t *result = descend(grid.on_device_wall, grid.on_device_costs, launch);
    BENCHMARK_CUDA(cudaMemcpy(grid.device_costs, result, row_bytes(), cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    grid.loops_result = descend(grid.wall, grid.loops_costs, pathfinder_loops);
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("cost", grid.device_costs, grid.loops_result, grid.nr_columns, why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        for (int32_t *costs : grid.on_device_costs) {
            BENCHMARK_CUDA(cudaFree(costs));
        }
        BENCHMARK_CUDA(cudaFree(grid.on_device_wall));
    }
    for (int32_t *costs : grid.loops_costs) {
        free(costs);
    }
    free(grid.device_costs);
    free(grid.wall);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "pathfinder",
        "the cheapest way down a grid, by dynamic programming over its rows",
        "Mcells/s",
        20000,
        "columns of the grid",
        prepare,
        device_round,
        loops_round,
        NULL,
        check,
        NULL,
        release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
