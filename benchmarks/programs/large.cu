/*
 * Large launches, and a small one beside them: for benchmarks/experiments/slicing.py.
 *
 * large multiply BLOCKS ROUNDS: a product of matrices with a grid of BLOCKS x BLOCKS, as in the paper's section 5.5.2.
 *
 * large spin NR_BLOCKS BLOCK_US: one launch after the other of blocks that last BLOCK_US each, until standard input is
 * closed; says "ready" after the first.
 *
 * large wake NR SLEEP_US: NR times a sleep and an empty kernel that is waited for.
 *
 * Prints one JSON object: what each round took, by events of its stream; how many launches ended and how long the first
 * took; what each of the small launches took, by the host's clock.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "device_clock.cuh"

static const int tile = 16;

__global__ void fill(float *to, size_t nr)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += (size_t)gridDim.x * blockDim.x) {
        to[i] = (float)(i % 7) - 3;
    }
}

__global__ void multiply(float *c, const float *a, const float *b, size_t n)
{
    __shared__ float a_tile[tile][tile], b_tile[tile][tile];
    const size_t row = blockIdx.y * (size_t)tile + threadIdx.y, column = blockIdx.x * (size_t)tile + threadIdx.x;
    float sum = 0;
    for (size_t k = 0; k < n; k += tile) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < tile; i++) {
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void nothing() {}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static int run_multiply(size_t nr_blocks, int nr_rounds)
{
    const size_t n = nr_blocks * tile;
    float *matrices[3];
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (float *&matrix : matrices) {
        CHECK(cudaMalloc(&matrix, n * n * sizeof(float)));
        fill<<<256, 256>>>(matrix, n * n);
    }
    printf("{\"blocks\": %zu, \"seconds\": [", nr_blocks);
    for (int round = -1; round < nr_rounds; round++) { /* the first prepares what has to be */
        float ms;
        CHECK(cudaEventRecord(begin));
        multiply<<<dim3(nr_blocks, nr_blocks), dim3(tile, tile)>>>(matrices[2], matrices[0], matrices[1], n);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (round >= 0) {
            printf("%s%.9g", round ? ", " : "", ms / 1e3);
        }
    }
    printf("]}\n");
    return 0;
}

static bool is_input_closed(void)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char byte;
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int run_spin(unsigned nr_blocks, unsigned long long block_us)
{
    unsigned long nr_launches = 0;
    double first_s = 0;
    do {
        const double begin_s = now_s();
        spin<<<nr_blocks, 32>>>(block_us * 1000);
        CHECK(cudaGetLastError());
        if (nr_launches == 1) {
            printf("ready\n"); /* the second is on its way */
            fflush(stdout);
        }
        CHECK(cudaDeviceSynchronize());
        if (nr_launches++ == 0) {
            first_s = now_s() - begin_s;
        }
    } while (!is_input_closed());
    printf("{\"launches\": %lu, \"first_s\": %.9g}\n", nr_launches, first_s);
    return 0;
}

static int run_wake(int nr, unsigned sleep_us)
{
    nothing<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    printf("{\"us\": [");
    for (int i = 0; i < nr; i++) {
        const timespec sleep = {sleep_us / 1000000, (sleep_us % 1000000) * 1000l};
        nanosleep(&sleep, NULL);
        const double begin_s = now_s();
        nothing<<<1, 1>>>();
        CHECK(cudaDeviceSynchronize());
        printf("%s%.1f", i ? ", " : "", (now_s() - begin_s) * 1e6);
    }
    printf("]}\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "multiply") == 0) {
        return run_multiply(strtoul(argv[2], NULL, 10), atoi(argv[3]));
    }
    if (argc == 4 && strcmp(argv[1], "spin") == 0) {
        return run_spin(strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    }
    if (argc == 4 && strcmp(argv[1], "wake") == 0) {
        return run_wake(atoi(argv[2]), strtoul(argv[3], NULL, 10));
    }
    fprintf(stderr, "large: multiply BLOCKS ROUNDS, spin NR_BLOCKS BLOCK_US, or wake NR SLEEP_US\n");
    return 2;
}
