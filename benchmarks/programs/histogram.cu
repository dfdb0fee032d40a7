/*
 * histogram, after the CUDA SDK (its 256 bins): each warp counts into bins of its own in shared memory with atomic
 * additions, a block adds up those of its warps, a second kernel those of all blocks. Both are waited for.
 */
#include "histogram.h"

#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

#define NR_WARPS   6
#define WARP_SIZE  32
#define BLOCK_SIZE (NR_WARPS * WARP_SIZE)
#define MERGE_SIZE 256

static size_t nr_words;
static uint32_t *words, *loops_parts, loops_bins[NR_BINS], fetched[NR_BINS]; /* of the host */
static uint32_t *d_words, *d_parts, *d_bins;

__device__ static void count_word(uint32_t *bins, uint32_t word)
{
    atomicAdd(bins + (word & 0xff), 1);
    atomicAdd(bins + (word >> 8 & 0xff), 1);
    atomicAdd(bins + (word >> 16 & 0xff), 1);
    atomicAdd(bins + (word >> 24), 1);
}

__global__ void count_parts(uint32_t *parts, const uint32_t *words, uint32_t nr_words)
{
    __shared__ uint32_t bins_of_warps[NR_WARPS * NR_BINS];
    uint32_t *bins = bins_of_warps + threadIdx.x / WARP_SIZE * NR_BINS;

#pragma unroll
    for (int i = 0; i < NR_BINS / WARP_SIZE; i++) {
        bins_of_warps[threadIdx.x + i * BLOCK_SIZE] = 0;
    }
    __syncthreads();
    for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < nr_words; at += blockDim.x * gridDim.x) {
        count_word(bins, words[at]);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < NR_BINS; bin += BLOCK_SIZE) {
        uint32_t sum = 0;
        for (int warp = 0; warp < NR_WARPS; warp++) {
            sum += bins_of_warps[warp * NR_BINS + bin];
        }
        parts[blockIdx.x * NR_BINS + bin] = sum;
    }
}

/* A block for each bin. */
__global__ void merge_parts(uint32_t *bins, const uint32_t *parts)
{
    __shared__ uint32_t sums[MERGE_SIZE];
    uint32_t sum = 0;

    for (int part = threadIdx.x; part < NR_PARTS; part += MERGE_SIZE) {
        sum += parts[part * NR_BINS + blockIdx.x];
    }
    sums[threadIdx.x] = sum;
    for (int stride = MERGE_SIZE / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride) {
            sums[threadIdx.x] += sums[threadIdx.x + stride];
        }
    }
    if (threadIdx.x == 0) {
        bins[blockIdx.x] = sums[0];
    }
}

static double prepare(size_t size)
{
    uint64_t seed = 4;
    if (size % 4 || size > (1ull << 32) - 4) {
        benchmark_fail("the size %zu is not a multiple of 4 below 2^32", size);
    }
    nr_words = size / 4;
    words = (uint32_t *)benchmark_allocate(nr_words, sizeof(uint32_t));
    loops_parts = (uint32_t *)benchmark_allocate(NR_PARTS * NR_BINS, sizeof(uint32_t));
    for (size_t i = 0; i < nr_words; i++) {
        words[i] = benchmark_random(&seed);
    }
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc(&d_words, size));
        BENCHMARK_CUDA(cudaMalloc(&d_parts, NR_PARTS * NR_BINS * sizeof(uint32_t)));
        BENCHMARK_CUDA(cudaMalloc(&d_bins, NR_BINS * sizeof(uint32_t)));
        BENCHMARK_CUDA(cudaMemcpy(d_words, words, size, cudaMemcpyHostToDevice));
    }
    return 1e-6 * size;
}

static void device_round()
{
    count_parts<<<NR_PARTS, BLOCK_SIZE>>>(d_parts, d_words, nr_words);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
    merge_parts<<<NR_BINS, MERGE_SIZE>>>(d_bins, d_parts);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void loops_round()
{
    histogram_loops(loops_bins, loops_parts, words, nr_words);
}

static void fetch()
{
    BENCHMARK_CUDA(cudaMemcpy(fetched, d_bins, sizeof(fetched), cudaMemcpyDeviceToHost));
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("bin", (int32_t *)fetched, (int32_t *)loops_bins, NR_BINS, why, why_size);
}

static void release()
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(d_words));
        BENCHMARK_CUDA(cudaFree(d_parts));
        BENCHMARK_CUDA(cudaFree(d_bins));
    }
    free(words);
    free(loops_parts);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "histogram",
        .summary = "how often each of 256 values occurs, with atomic additions in shared memory",
        .unit = "MB/s",
        .default_size = 16000000,
        .size_help = "bytes, a multiple of 4",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
