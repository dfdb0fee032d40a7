/*
 * hotspot of Rodinia, written anew: short launches that nothing waits for until the temperatures are copied back. One
 * thing differs: cells keep their size when there are more of them, where the original cuts up a chip of 16 mm and is
 * unstable from 2048 x 2048 on.
 */
#include "hotspot.h"

#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

/*
 * The device adds most products in one rounding (fma), the loops in two. A step then differs by about one unit in the
 * last place of a temperature, 2^-24 of it; it averages over cells, so that differences add up over the steps but do
 * not grow. A wrong neighbour or a missing power moves a cell by 1e-5 of it or more in one step.
 */
static const double TOLERANCE = HOTSPOT_STEPS * 0x1p-24;

static struct {
    struct hotspot_advance physics; /* without arrays and steps */
    size_t nr_cells;
    float *power, *initial; /* of the host */
    float *loops_temperatures[2], *loops_result;
    float *on_device_power, *on_device_temperatures[2], *device_result;
} chip;

static __global__ void advance_tiles(struct hotspot_advance advance)
{
    __shared__ float before[HOTSPOT_BLOCK][HOTSPOT_BLOCK], power[HOTSPOT_BLOCK][HOTSPOT_BLOCK];
    __shared__ float after[HOTSPOT_BLOCK][HOTSPOT_BLOCK];
    int x = threadIdx.x, y = threadIdx.y;
    int first_column = blockIdx.x * HOTSPOT_BLOCK_EDGE - HOTSPOT_BLOCK_STEPS;
    int first_row = blockIdx.y * HOTSPOT_BLOCK_EDGE - HOTSPOT_BLOCK_STEPS;
    int column = first_column + x, row = first_row + y;
    bool is_on_chip = column >= 0 && column < advance.edge && row >= 0 && row < advance.edge;
    size_t cell = (size_t)row * advance.edge + column;

    if (is_on_chip) {
        before[y][x] = advance.from[cell];
        power[y][x] = advance.power[cell];
    }
    __syncthreads();

    /* At the chip's edge a cell is its own neighbour: no heat flows. */
    int west = max(x - 1, max(0, -first_column)),
        east = min(x + 1, min(HOTSPOT_BLOCK, advance.edge - first_column) - 1);
    int north = max(y - 1, max(0, -first_row)), south = min(y + 1, min(HOTSPOT_BLOCK, advance.edge - first_row) - 1);
    for (int step = 0; step < advance.nr_steps; step++) {
        int first = step + 1, last = HOTSPOT_BLOCK - 2 - step;
        bool is_computed = is_on_chip && x >= first && x <= last && y >= first && y <= last;
        if (is_computed) {
            after[y][x] = before[y][x] + advance.per_watt * power[y][x] +
                          (before[north][x] + before[south][x] - 2 * before[y][x]) * advance.per_kelvin_beside +
                          (before[y][west] + before[y][east] - 2 * before[y][x]) * advance.per_kelvin_beside +
                          (HOTSPOT_SINK_K - before[y][x]) * advance.per_kelvin_to_sink;
        }
        __syncthreads();
        if (is_computed) {
            before[y][x] = after[y][x];
        }
        __syncthreads();
    }
    const int first = HOTSPOT_BLOCK_STEPS, last = HOTSPOT_BLOCK - 1 - HOTSPOT_BLOCK_STEPS;
    if (is_on_chip && x >= first && x <= last && y >= first && y <= last) {
        advance.to[cell] = before[y][x];
    }
}

/* Silicon, 0.5 mm thick, in square cells of 16 mm / 512; a step is as long as the hottest cell takes for 1 mK. */
static void set_physics(struct hotspot_advance *advance, int edge)
{
    const double cell_m = 0.016 / 512, thickness_m = 0.0005;
    const double conductivity = 100, heat_capacity = 0.5 * 1.75e6; /* W/(m K), J/(m^3 K); half of the chip is heated */
    const double most_watts_per_m2 = 3e6;
    const double step_s = 0.001 * heat_capacity * thickness_m / most_watts_per_m2;
    const double kelvin_per_joule = 1 / (heat_capacity * thickness_m * cell_m * cell_m);
    advance->edge = edge;
    advance->per_watt = step_s * kelvin_per_joule;
    advance->per_kelvin_beside = step_s * kelvin_per_joule * 2 * conductivity * thickness_m;
    advance->per_kelvin_to_sink = step_s * kelvin_per_joule * conductivity * cell_m * cell_m / thickness_m;
}

static void prepare_device(void)
{
    chip.device_result = (float *)benchmark_allocate(chip.nr_cells, sizeof(float));
    BENCHMARK_CUDA(cudaMalloc(&chip.on_device_power, chip.nr_cells * sizeof(float)));
    for (float *&temperatures : chip.on_device_temperatures) {
        BENCHMARK_CUDA(cudaMalloc(&temperatures, chip.nr_cells * sizeof(float)));
    }
}

static double prepare(size_t size)
{
    if (size > 32768) {
        benchmark_fail("at most 32768 cells along the edge");
    }
    chip.nr_cells = size * size;
    set_physics(&chip.physics, (int)size);
    chip.power = (float *)benchmark_allocate(chip.nr_cells, sizeof(float));
    chip.initial = (float *)benchmark_allocate(chip.nr_cells, sizeof(float));
    uint64_t random = 1;
    for (size_t cell = 0; cell < chip.nr_cells; cell++) {
        chip.power[cell] = 0.01f + 0.09f * benchmark_random_float(&random);
        chip.initial[cell] = 320 + 20 * benchmark_random_float(&random);
    }
    for (float *&temperatures : chip.loops_temperatures) {
        temperatures = (float *)benchmark_allocate(chip.nr_cells, sizeof(float));
    }
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return (double)chip.nr_cells * HOTSPOT_STEPS * 1e-6;
}

/* From temperatures[0] on, one `advance` after the other; returns where the last temperatures are. */
static float *simulate(const float *power, float *const temperatures[2], void (*run)(const struct hotspot_advance *))
{
    struct hotspot_advance advance = chip.physics;
    advance.power = power;
    advance.from = temperatures[0];
    advance.to = temperatures[1];
    for (int step = 0; step < HOTSPOT_STEPS; step += advance.nr_steps) {
        advance.nr_steps = HOTSPOT_STEPS - step;
        if (advance.nr_steps > HOTSPOT_BLOCK_STEPS) {
            advance.nr_steps = HOTSPOT_BLOCK_STEPS;
        }
        run(&advance);
        advance.from = advance.to;
        advance.to = temperatures[advance.to == temperatures[0]];
    }
    return (float *)advance.from;
}

static void launch(const struct hotspot_advance *advance)
{
    int nr_tiles = (advance->edge + HOTSPOT_BLOCK_EDGE - 1) / HOTSPOT_BLOCK_EDGE;
    advance_tiles<<<dim3(nr_tiles, nr_tiles), dim3(HOTSPOT_BLOCK, HOTSPOT_BLOCK)>>>(*advance);
    BENCHMARK_CUDA(cudaGetLastError());
}

static void device_round(void)
{
    size_t nr_bytes = chip.nr_cells * sizeof(float);
    BENCHMARK_CUDA(cudaMemcpy(chip.on_device_power, chip.power, nr_bytes, cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy(chip.on_device_temperatures[0], chip.initial, nr_bytes, cudaMemcpyHostToDevice));
    float *result = simulate(chip.on_device_power, chip.on_device_temperatures, launch);
    BENCHMARK_CUDA(cudaMemcpy(chip.device_result, result, nr_bytes, cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    memcpy(chip.loops_temperatures[0], chip.initial, chip.nr_cells * sizeof(float));
    chip.loops_result = simulate(chip.power, chip.loops_temperatures, hotspot_loops);
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("temperature", chip.device_result, chip.loops_result, chip.nr_cells, TOLERANCE, why,
                                    why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        for (float *temperatures : chip.on_device_temperatures) {
            BENCHMARK_CUDA(cudaFree(temperatures));
        }
        BENCHMARK_CUDA(cudaFree(chip.on_device_power));
    }
    for (float *temperatures : chip.loops_temperatures) {
        free(temperatures);
    }
    free(chip.device_result);
    free(chip.initial);
    free(chip.power);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "hotspot",
        "the temperature of a chip over time, a stencil with ghost zones in shared memory",
        "Mcells/s",
        128,
        "cells along the chip's edge",
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
