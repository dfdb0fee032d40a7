/*
 * srad_v1, after Rodinia: speckle reducing anisotropic diffusion (Yu and Acton, 2002) of an image that stands column
 * after column. Each iteration adds up all pixels and their squares by a tree of blocks, fetches both sums with a copy
 * that waits, and takes one step with what they say. A round brings the image to the device and back.
 */
#include "srad_v1.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

#define BLOCK_SIZE REDUCED_AT_ONCE

static float *input, *fetched; /* of the host */
static struct srad loops, device;

__global__ void extract(struct srad srad)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < srad.nr_pixels) {
        srad.image[i] = expf(srad.image[i] / 255);
    }
}

__global__ void compress(struct srad srad)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < srad.nr_pixels) {
        srad.image[i] = logf(srad.image[i]) * 255;
    }
}

__global__ void prepare_sums(struct srad srad)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= srad.nr_pixels) {
        return;
    }
    srad.sums[i] = srad.image[i];
    srad.squares[i] = srad.image[i] * srad.image[i];
}

/* Adds up what a block's threads have, by pairs, then pairs of pairs; the last thread ends up with the sums. */
__global__ void reduce(struct srad srad, int nr, int stride)
{
    __shared__ float sums[BLOCK_SIZE], squares[BLOCK_SIZE];
    int thread = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + thread;

    sums[thread] = i < nr ? srad.sums[i * stride] : 0;
    squares[thread] = i < nr ? srad.squares[i * stride] : 0;
    for (int half = 1; half < BLOCK_SIZE; half *= 2) {
        __syncthreads();
        if ((thread + 1) % (2 * half) == 0) {
            sums[thread] += sums[thread - half];
            squares[thread] += squares[thread - half];
        }
    }
    if (thread == BLOCK_SIZE - 1) {
        srad.sums[blockIdx.x * BLOCK_SIZE * stride] = sums[thread];
        srad.squares[blockIdx.x * BLOCK_SIZE * stride] = squares[thread];
    }
}

/* The differences to the neighbours and, from them, how much of them diffusion lets through. */
__global__ void differentiate(struct srad srad, float scale)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    int row = i % srad.nr_rows, column = i / srad.nr_rows;
    if (i >= srad.nr_pixels) {
        return;
    }

    float pixel = srad.image[i];
    float north = srad.image[srad.north[row] + srad.nr_rows * column] - pixel;
    float south = srad.image[srad.south[row] + srad.nr_rows * column] - pixel;
    float west = srad.image[row + srad.nr_rows * srad.west[column]] - pixel;
    float east = srad.image[row + srad.nr_rows * srad.east[column]] - pixel;
    float gradient = (north * north + south * south + west * west + east * east) / (pixel * pixel);
    float laplacian = (north + south + west + east) / pixel;
    float numerator = 0.5f * gradient - 0.0625f * (laplacian * laplacian);
    float denominator = 1 + 0.25f * laplacian;
    float variation = numerator / (denominator * denominator);
    float coefficient = 1 / (1 + (variation - scale) / (scale * (1 + scale)));
    srad.coefficient[i] = coefficient < 0 ? 0 : coefficient > 1 ? 1 : coefficient;
    srad.to_north[i] = north;
    srad.to_south[i] = south;
    srad.to_west[i] = west;
    srad.to_east[i] = east;
}

__global__ void diffuse(struct srad srad)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    int row = i % srad.nr_rows, column = i / srad.nr_rows;
    if (i >= srad.nr_pixels) {
        return;
    }

    float here = srad.coefficient[i];
    float south = srad.coefficient[srad.south[row] + srad.nr_rows * column];
    float east = srad.coefficient[row + srad.nr_rows * srad.east[column]];
    float divergence =
        here * srad.to_north[i] + south * srad.to_south[i] + here * srad.to_west[i] + east * srad.to_east[i];
    srad.image[i] += 0.25f * LAMBDA * divergence;
}

/* The places of all that `srad` owns, indices first. */
static const int nr_index_arrays = 4, nr_float_arrays = 8;

static int **index_array(struct srad &srad, int number)
{
    int **arrays[] = {&srad.north, &srad.south, &srad.west, &srad.east};
    return arrays[number];
}

static float **float_array(struct srad &srad, int number)
{
    float **arrays[] = {&srad.image,   &srad.coefficient, &srad.to_north, &srad.to_south,
                        &srad.to_west, &srad.to_east,     &srad.sums,     &srad.squares};
    return arrays[number];
}

static void prepare_loops(int size)
{
    loops.nr_rows = loops.nr_columns = size;
    loops.nr_pixels = size * size;
    for (int number = 0; number < nr_index_arrays; number++) {
        *index_array(loops, number) = (int *)benchmark_allocate(size, sizeof(int));
    }
    for (int number = 0; number < nr_float_arrays; number++) {
        *float_array(loops, number) = (float *)benchmark_allocate(loops.nr_pixels, sizeof(float));
    }
    for (int i = 0; i < size; i++) {
        loops.north[i] = loops.west[i] = std::max(i - 1, 0);
        loops.south[i] = loops.east[i] = std::min(i + 1, size - 1);
    }
}

static void prepare_device()
{
    device = loops;
    for (int number = 0; number < nr_index_arrays; number++) {
        size_t nr_bytes = loops.nr_rows * sizeof(int);
        BENCHMARK_CUDA(cudaMalloc(index_array(device, number), nr_bytes));
        BENCHMARK_CUDA(
            cudaMemcpy(*index_array(device, number), *index_array(loops, number), nr_bytes, cudaMemcpyHostToDevice));
    }
    for (int number = 0; number < nr_float_arrays; number++) {
        BENCHMARK_CUDA(cudaMalloc(float_array(device, number), loops.nr_pixels * sizeof(float)));
    }
}

static double prepare(size_t size)
{
    uint64_t seed = 6;
    if (size < 2 || size > 16384) {
        benchmark_fail("the size %zu is not between 2 and 16384", size);
    }
    prepare_loops(size);
    input = (float *)benchmark_allocate(loops.nr_pixels, sizeof(float));
    fetched = (float *)benchmark_allocate(loops.nr_pixels, sizeof(float));
    for (int i = 0; i < loops.nr_pixels; i++) {
        input[i] = 255 * benchmark_random_float(&seed);
    }
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return 1e-6 * loops.nr_pixels * int(NR_ITERATIONS);
}

static float scale_on_device(int nr_blocks)
{
    float sum, sum_of_squares;
    prepare_sums<<<nr_blocks, BLOCK_SIZE>>>(device);
    for (int nr = device.nr_pixels, stride = 1; nr > 1; nr = srad_nr_reduced(nr), stride *= REDUCED_AT_ONCE) {
        reduce<<<srad_nr_reduced(nr), BLOCK_SIZE>>>(device, nr, stride);
    }
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaMemcpy(&sum, device.sums, sizeof(sum), cudaMemcpyDeviceToHost));
    BENCHMARK_CUDA(cudaMemcpy(&sum_of_squares, device.squares, sizeof(sum_of_squares), cudaMemcpyDeviceToHost));
    return srad_scale(sum, sum_of_squares, device.nr_pixels);
}

static void device_round()
{
    int nr_blocks = (device.nr_pixels + BLOCK_SIZE - 1) / BLOCK_SIZE;
    size_t nr_bytes = device.nr_pixels * sizeof(float);

    BENCHMARK_CUDA(cudaMemcpy(device.image, input, nr_bytes, cudaMemcpyHostToDevice));
    extract<<<nr_blocks, BLOCK_SIZE>>>(device);
    for (int iteration = 0; iteration < NR_ITERATIONS; iteration++) {
        float scale = scale_on_device(nr_blocks);
        differentiate<<<nr_blocks, BLOCK_SIZE>>>(device, scale);
        diffuse<<<nr_blocks, BLOCK_SIZE>>>(device);
    }
    compress<<<nr_blocks, BLOCK_SIZE>>>(device);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaMemcpy(fetched, device.image, nr_bytes, cudaMemcpyDeviceToHost));
}

static void loops_round()
{
    memcpy(loops.image, input, loops.nr_pixels * sizeof(float));
    srad_loops(&loops);
}

/* The logarithm of a value near 1, wrong by 10 of its last places, 2^-23 each, times 255. */
static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("pixel", fetched, loops.image, loops.nr_pixels, 3e-4, why, why_size);
}

static void release()
{
    for (int number = 0; number < nr_index_arrays; number++) {
        if (benchmark_uses_device()) {
            BENCHMARK_CUDA(cudaFree(*index_array(device, number)));
        }
        free(*index_array(loops, number));
    }
    for (int number = 0; number < nr_float_arrays; number++) {
        if (benchmark_uses_device()) {
            BENCHMARK_CUDA(cudaFree(*float_array(device, number)));
        }
        free(*float_array(loops, number));
    }
    free(input);
    free(fetched);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "srad_v1",
        .summary = "speckle reducing anisotropic diffusion of an image",
        .unit = "Mpixels/s",
        .default_size = 320,
        .size_help = "pixels in a row and in a column",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
