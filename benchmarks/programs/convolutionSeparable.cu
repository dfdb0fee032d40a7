/*
 * convolutionSeparable, after the CUDA SDK: an image convolved with a kernel that is a product of a row and a column. A
 * block keeps a strip of the image and its halo in shared memory; the taps are in constant memory. Each launch is
 * waited for.
 */
#include "convolutionSeparable.h"

#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

/* A thread computes `_STEPS` pixels, a block width (or height) apart, and loads `HALO_STEPS` more on either side. */
#define ROWS_WIDTH     16
#define ROWS_HEIGHT    4
#define ROWS_STEPS     8
#define COLUMNS_WIDTH  16
#define COLUMNS_HEIGHT 8
#define COLUMNS_STEPS  8
#define HALO_STEPS     1

static_assert(ROWS_WIDTH * HALO_STEPS >= RADIUS && COLUMNS_HEIGHT * HALO_STEPS >= RADIUS, "the halo holds all taps");

static const int multiple = ROWS_WIDTH * ROWS_STEPS;
static_assert(multiple % (COLUMNS_HEIGHT * COLUMNS_STEPS) == 0, "what fits the rows fits the columns");

static int width;
static size_t nr_pixels;
static float taps[NR_TAPS], *image, *loops_rows, *loops_result, *fetched; /* of the host */
static float *d_image, *d_rows, *d_result;

__constant__ float d_taps[NR_TAPS];

__global__ void convolve_rows(float *to, const float *from, int width)
{
    __shared__ float strip[ROWS_HEIGHT][(ROWS_STEPS + 2 * HALO_STEPS) * ROWS_WIDTH];
    int x = (blockIdx.x * ROWS_STEPS - HALO_STEPS) * ROWS_WIDTH + threadIdx.x;
    int y = blockIdx.y * ROWS_HEIGHT + threadIdx.y;
    float *row = strip[threadIdx.y];

    from += y * width + x;
    to += y * width + x;
#pragma unroll
    for (int step = HALO_STEPS; step < HALO_STEPS + ROWS_STEPS; step++) {
        row[threadIdx.x + step * ROWS_WIDTH] = from[step * ROWS_WIDTH];
    }
#pragma unroll
    for (int step = 0; step < HALO_STEPS; step++) {
        row[threadIdx.x + step * ROWS_WIDTH] = x + step * ROWS_WIDTH >= 0 ? from[step * ROWS_WIDTH] : 0;
    }
#pragma unroll
    for (int step = HALO_STEPS + ROWS_STEPS; step < 2 * HALO_STEPS + ROWS_STEPS; step++) {
        row[threadIdx.x + step * ROWS_WIDTH] = x + step * ROWS_WIDTH < width ? from[step * ROWS_WIDTH] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int step = HALO_STEPS; step < HALO_STEPS + ROWS_STEPS; step++) {
        float sum = 0;
#pragma unroll
        for (int tap = -RADIUS; tap <= RADIUS; tap++) {
            sum += d_taps[RADIUS - tap] * row[threadIdx.x + step * ROWS_WIDTH + tap];
        }
        to[step * ROWS_WIDTH] = sum;
    }
}

__global__ void convolve_columns(float *to, const float *from, int width, int height)
{
    /* One more than a multiple of the banks: neighbours in a column do not share a bank. */
    __shared__ float strip[COLUMNS_WIDTH][(COLUMNS_STEPS + 2 * HALO_STEPS) * COLUMNS_HEIGHT + 1];
    int x = blockIdx.x * COLUMNS_WIDTH + threadIdx.x;
    int y = (blockIdx.y * COLUMNS_STEPS - HALO_STEPS) * COLUMNS_HEIGHT + threadIdx.y;
    int stride = COLUMNS_HEIGHT * width;
    float *column = strip[threadIdx.x];

    from += y * width + x;
    to += y * width + x;
#pragma unroll
    for (int step = HALO_STEPS; step < HALO_STEPS + COLUMNS_STEPS; step++) {
        column[threadIdx.y + step * COLUMNS_HEIGHT] = from[step * stride];
    }
#pragma unroll
    for (int step = 0; step < HALO_STEPS; step++) {
        column[threadIdx.y + step * COLUMNS_HEIGHT] = y + step * COLUMNS_HEIGHT >= 0 ? from[step * stride] : 0;
    }
#pragma unroll
    for (int step = HALO_STEPS + COLUMNS_STEPS; step < 2 * HALO_STEPS + COLUMNS_STEPS; step++) {
        column[threadIdx.y + step * COLUMNS_HEIGHT] = y + step * COLUMNS_HEIGHT < height ? from[step * stride] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int step = HALO_STEPS; step < HALO_STEPS + COLUMNS_STEPS; step++) {
        float sum = 0;
#pragma unroll
        for (int tap = -RADIUS; tap <= RADIUS; tap++) {
            sum += d_taps[RADIUS - tap] * column[threadIdx.y + step * COLUMNS_HEIGHT + tap];
        }
        to[step * stride] = sum;
    }
}

static float *random_floats(size_t nr, uint64_t seed)
{
    float *numbers = (float *)benchmark_allocate(nr, sizeof(float));
    for (size_t i = 0; i < nr; i++) {
        numbers[i] = benchmark_random_float(&seed);
    }
    return numbers;
}

static double prepare(size_t size)
{
    uint64_t seed = 2;
    if (size % multiple || size > 16384) {
        benchmark_fail("the size %zu is not a multiple of %d up to 16384", size, multiple);
    }
    width = size;
    nr_pixels = size * size;
    for (float &tap : taps) {
        tap = benchmark_random_float(&seed) / float(RADIUS);
    }
    image = random_floats(nr_pixels, 3);
    loops_rows = (float *)benchmark_allocate(nr_pixels, sizeof(float));
    loops_result = (float *)benchmark_allocate(nr_pixels, sizeof(float));
    fetched = (float *)benchmark_allocate(nr_pixels, sizeof(float));
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc(&d_image, nr_pixels * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&d_rows, nr_pixels * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&d_result, nr_pixels * sizeof(float)));
        BENCHMARK_CUDA(cudaMemcpy(d_image, image, nr_pixels * sizeof(float), cudaMemcpyHostToDevice));
    }
    return 1e-6 * nr_pixels;
}

/* The taps are copied in each round, so that the first round and not the preparation loads the module. */
static void device_round()
{
    BENCHMARK_CUDA(cudaMemcpyToSymbol(d_taps, taps, sizeof(taps)));
    convolve_rows<<<dim3(width / (ROWS_WIDTH * ROWS_STEPS), width / ROWS_HEIGHT), dim3(ROWS_WIDTH, ROWS_HEIGHT)>>>(
        d_rows, d_image, width);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
    convolve_columns<<<dim3(width / COLUMNS_WIDTH, width / (COLUMNS_HEIGHT * COLUMNS_STEPS)),
                       dim3(COLUMNS_WIDTH, COLUMNS_HEIGHT)>>>(d_result, d_rows, width, width);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void loops_round()
{
    convolve_rows_loops(loops_rows, image, taps, width, width);
    convolve_columns_loops(loops_result, loops_rows, taps, width, width);
}

static void fetch()
{
    BENCHMARK_CUDA(cudaMemcpy(fetched, d_result, nr_pixels * sizeof(float), cudaMemcpyDeviceToHost));
}

/* 17 additions in each direction, each rounded by up to 2^-24 of at most 2. */
static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("pixel", fetched, loops_result, nr_pixels, 1e-5, why, why_size);
}

static void release()
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(d_image));
        BENCHMARK_CUDA(cudaFree(d_rows));
        BENCHMARK_CUDA(cudaFree(d_result));
    }
    free(image);
    free(loops_rows);
    free(loops_result);
    free(fetched);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "convolutionSeparable",
        .summary = "an image convolved with 17 taps along its rows, then along its columns",
        .unit = "Mpixels/s",
        .default_size = 1024,
        .size_help = "pixels in a row and in a column, a multiple of 128",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
