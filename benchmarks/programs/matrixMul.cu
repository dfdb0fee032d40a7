/*
 * matrixMul, after the CUDA SDK: the product of two square matrices from tiles in shared memory. Launches follow one
 * another without waiting; one wait ends the round.
 */
#include "matrixMul.h"

#include <cmath>
#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

static const int nr_launches = 3;

static size_t n;
static float *a, *b, *loops_c, *device_c; /* of the host */
static float *d_a, *d_b, *d_c;

__global__ void matrix_mul(float *c, const float *a, const float *b, int n)
{
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;

    for (int k = 0; k < n; k += TILE) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

static double prepare(size_t size)
{
    uint64_t seed = 1;
    if (size % TILE || size > 16384) {
        benchmark_fail("the size %zu is not a multiple of %d up to 16384", size, TILE);
    }
    n = size;
    a = (float *)benchmark_allocate(n * n, sizeof(float));
    b = (float *)benchmark_allocate(n * n, sizeof(float));
    loops_c = (float *)benchmark_allocate(n * n, sizeof(float));
    device_c = (float *)benchmark_allocate(n * n, sizeof(float));
    for (size_t i = 0; i < n * n; i++) {
        a[i] = benchmark_random_float(&seed) - 0.5f;
        b[i] = benchmark_random_float(&seed) - 0.5f;
    }
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc(&d_a, n * n * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&d_b, n * n * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&d_c, n * n * sizeof(float)));
        BENCHMARK_CUDA(cudaMemcpy(d_a, a, n * n * sizeof(float), cudaMemcpyHostToDevice));
        BENCHMARK_CUDA(cudaMemcpy(d_b, b, n * n * sizeof(float), cudaMemcpyHostToDevice));
    }
    return 2e-9 * n * n * n * nr_launches;
}

static void device_round()
{
    dim3 grid(n / TILE, n / TILE), block(TILE, TILE);
    for (int i = 0; i < nr_launches; i++) {
        matrix_mul<<<grid, block>>>(d_c, d_a, d_b, n);
    }
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void loops_round()
{
    for (int i = 0; i < nr_launches; i++) {
        matrix_mul_loops(loops_c, a, b, n);
    }
}

static void fetch()
{
    BENCHMARK_CUDA(cudaMemcpy(device_c, d_c, n * n * sizeof(float), cudaMemcpyDeviceToHost));
}

/* n additions, each rounded by up to 2^-24, that go up and down at random; with room for the worst of all elements. */
static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("c", device_c, loops_c, n * n, 1e-6 * std::sqrt(n), why, why_size);
}

static void release()
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(d_a));
        BENCHMARK_CUDA(cudaFree(d_b));
        BENCHMARK_CUDA(cudaFree(d_c));
    }
    free(a);
    free(b);
    free(loops_c);
    free(device_c);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "matrixMul",
        .summary = "the product of two square matrices from tiles in shared memory",
        .unit = "Gflop/s",
        .default_size = 256,
        .size_help = "rows of the matrices, a multiple of 32",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
