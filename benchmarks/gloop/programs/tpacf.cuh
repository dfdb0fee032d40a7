/*
 * The kernels of tpacf.cu. A block makes a histogram: it goes through tiles of 256 points of the one set, and for each
 * of them through those of the other. The histogram lies in shared memory, one for each warp, and has to outlive every
 * scheduling point.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_TPACF_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_TPACF_CUH

#include "gloop/gloop.cuh"
#include "tpacf.h"

enum { TPACF_THREADS = 256, TPACF_WARPS = TPACF_THREADS / 32 };

struct tpacf_shared {
    uint32_t histograms[TPACF_WARPS][TPACF_BINS];
    struct tpacf_point tile[TPACF_THREADS]; /* of the other set; filled anew for each */
    float bounds[TPACF_BINS];
};

static __device__ struct tpacf_shared *tpacf_shared(void)
{
    extern __shared__ uint64_t tpacf_dynamic[];
    return (struct tpacf_shared *)tpacf_dynamic;
}

static __device__ int tpacf_first(const struct tpacf_sky &sky, int block)
{
    return block <= sky.nr_random_sets ? 0 : block - sky.nr_random_sets;
}

static __device__ int tpacf_second(const struct tpacf_sky &sky, int block)
{
    return block <= sky.nr_random_sets ? block : block - sky.nr_random_sets;
}

/* By halving: the last bin whose bound is not below the product. */
static __device__ int tpacf_bin(const float *bounds, struct tpacf_point one, struct tpacf_point other)
{
    float dot = __fadd_rn(__fadd_rn(__fmul_rn(one.x, other.x), __fmul_rn(one.y, other.y)), __fmul_rn(one.z, other.z));
    int bin = 0;
    for (int step = TPACF_BINS / 2; step > 0; step /= 2) {
        bin += dot <= bounds[bin + step] ? step : 0;
    }
    return bin;
}

static __device__ void tpacf_begin(const struct tpacf_sky &sky, struct tpacf_shared *shared)
{
    for (int at = threadIdx.x; at < TPACF_WARPS * TPACF_BINS; at += TPACF_THREADS) {
        shared->histograms[at / TPACF_BINS][at % TPACF_BINS] = 0;
    }
    if (threadIdx.x < TPACF_BINS) {
        shared->bounds[threadIdx.x] = sky.bounds[threadIdx.x];
    }
    __syncthreads();
}

/* Counts the pairs of two tiles. */
static __device__ void tpacf_tiles(const struct tpacf_sky &sky, int block, int tile, int other_tile,
                                   struct tpacf_shared *shared)
{
    __builtin_assume(__isGlobal(sky.points));
    int first = tpacf_first(sky, block), second = tpacf_second(sky, block);
    int at = tile * TPACF_THREADS + threadIdx.x, other_first = other_tile * TPACF_THREADS;
    struct tpacf_point one = sky.points[(long)first * sky.nr_points + at];
    shared->tile[threadIdx.x] = sky.points[(long)second * sky.nr_points + other_first + threadIdx.x];
    __syncthreads();
    /* Of one set each pair once. Where it begins is asked here, and not for each pair. */
    for (int other = first == second ? max(0, at + 1 - other_first) : 0; other < TPACF_THREADS; other++) {
        int bin = tpacf_bin(shared->bounds, one, shared->tile[other]);
        atomicAdd(&shared->histograms[threadIdx.x / 32][bin], 1u);
    }
    __syncthreads();
}

/* Where the other tiles begin: within one set a pair counts once. */
static __device__ int tpacf_first_other(const struct tpacf_sky &sky, int block, int tile)
{
    return tpacf_first(sky, block) == tpacf_second(sky, block) ? tile : 0;
}

static __device__ void tpacf_end(const struct tpacf_sky &sky, int block, const struct tpacf_shared *shared)
{
    if (threadIdx.x < TPACF_BINS) {
        uint32_t sum = 0;
        for (int warp = 0; warp < TPACF_WARPS; warp++) {
            sum += shared->histograms[warp][threadIdx.x];
        }
        sky.histograms[block * TPACF_BINS + threadIdx.x] += sum;
    }
}

/* All tiles, or for the split way one; histograms in memory grow by what was counted. */
static __global__ void tpacf_plain(struct tpacf_sky sky, int first_tile, int end_tile)
{
    struct tpacf_shared *shared = tpacf_shared();
    tpacf_begin(sky, shared);
    for (int tile = first_tile; tile < end_tile; tile++) {
        for (int other = tpacf_first_other(sky, blockIdx.x, tile); other < sky.nr_points / TPACF_THREADS; other++) {
            tpacf_tiles(sky, blockIdx.x, tile, other, shared);
        }
    }
    tpacf_end(sky, blockIdx.x, shared);
}

/* One pair of tiles, then a scheduling point. */
template <class Loop> __device__ void tpacf_on(Loop *loop, struct tpacf_sky sky, int tile, int other)
{
    struct tpacf_shared *shared = tpacf_shared();
    int block = loop->logicalBlockIdx().x;
    tpacf_tiles(sky, block, tile, other, shared);
    other++;
    if (other == sky.nr_points / TPACF_THREADS) {
        tile++;
        other = tpacf_first_other(sky, block, tile);
    }
    if (tile == sky.nr_points / TPACF_THREADS) {
        tpacf_end(sky, block, shared);
    } else {
        loop->postTask([=](Loop *loop) { tpacf_on(loop, sky, tile, other); });
    }
}

template <class Loop> __device__ void tpacf_begin_on(Loop *loop, struct tpacf_sky sky)
{
    struct tpacf_shared *shared = tpacf_shared();
    loop->keep(shared, sizeof(*shared));
    tpacf_begin(sky, shared);
    tpacf_on(loop, sky, 0, 0);
}

#endif
