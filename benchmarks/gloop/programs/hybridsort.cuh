/*
 * The kernels of hybridsort.cu. To count and to deal out are short blocks that want much shared memory; so is to sort a
 * run of 1,024. To merge two runs is a block that is the longer, and the fewer of it there are, the longer the runs
 * are: it goes through tiles of what comes out of them, and finds where a tile begins in both by halving, along a
 * diagonal.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_HYBRIDSORT_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_HYBRIDSORT_CUH

#include <cfloat>

#include "gloop/gloop.cuh"
#include "hybridsort.h"

enum {
    SORT_THREADS = 256,
    SORT_EACH = 4, /* values of a thread */
    SORT_RUN = SORT_THREADS * SORT_EACH,
    SORT_DEALT = 16 * SORT_RUN, /* values of a block that deals out */
};

struct sort_keys {
    const float *values;
    float *dealt;
    const float *bounds; /* of buckets, rising: bucket b has what is at least bounds[b]; bounds[0] is below all */
    unsigned *places;    /* [bucket][block]: how many, then where they go */
    size_t nr;
    int nr_buckets, nr_blocks;
};

/* Runs of a length that are merged by twos, in each bucket. */
struct sort_pass {
    const float *from;
    float *to;
    const unsigned *begins; /* of each bucket, and behind the last */
    unsigned length;
    unsigned pairs; /* of the largest bucket */
};

static __device__ int sort_bucket(const float *bounds, int nr_buckets, float value)
{
    int low = 0, high = nr_buckets;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (value < bounds[middle]) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return low;
}

struct sort_deal_shared {
    float bounds[HYBRIDSORT_MOST_BUCKETS];
    unsigned places[HYBRIDSORT_MOST_BUCKETS];
};

static __device__ void sort_begin(const struct sort_keys &keys, int block, bool is_dealt,
                                  struct sort_deal_shared *shared)
{
    for (int bucket = threadIdx.x; bucket < keys.nr_buckets; bucket += SORT_THREADS) {
        shared->bounds[bucket] = keys.bounds[bucket];
        shared->places[bucket] = is_dealt ? keys.places[bucket * keys.nr_blocks + block] : 0;
    }
    __syncthreads();
}

/* How many values of its part a block has for each bucket. */
static __device__ void sort_count_block(const struct sort_keys &keys, int block)
{
    __shared__ struct sort_deal_shared shared;
    sort_begin(keys, block, false, &shared);
    for (size_t at = (size_t)block * SORT_DEALT + threadIdx.x, end = min((size_t)(block + 1) * SORT_DEALT, keys.nr);
         at < end; at += SORT_THREADS) {
        atomicAdd(&shared.places[sort_bucket(shared.bounds, keys.nr_buckets, keys.values[at])], 1u);
    }
    __syncthreads();
    for (int bucket = threadIdx.x; bucket < keys.nr_buckets; bucket += SORT_THREADS) {
        keys.places[bucket * keys.nr_blocks + block] = shared.places[bucket];
    }
    __syncthreads();
}

/* Deals them out, from the places that each bucket has for this block. */
static __device__ void sort_deal_block(const struct sort_keys &keys, int block)
{
    __shared__ struct sort_deal_shared shared;
    sort_begin(keys, block, true, &shared);
    for (size_t at = (size_t)block * SORT_DEALT + threadIdx.x, end = min((size_t)(block + 1) * SORT_DEALT, keys.nr);
         at < end; at += SORT_THREADS) {
        float value = keys.values[at];
        keys.dealt[atomicAdd(&shared.places[sort_bucket(shared.bounds, keys.nr_buckets, value)], 1u)] = value;
    }
    __syncthreads();
}

/* Sorts a run of a bucket where it lies: Batcher's bitonic network, filled up with what is above all. */
static __device__ void sort_run_block(float *values, const unsigned *begins, unsigned runs, int block)
{
    __shared__ float run[SORT_RUN];
    unsigned bucket = block / runs, begin = begins[bucket] + block % runs * SORT_RUN;
    unsigned end = min(begin + SORT_RUN, begins[bucket + 1]);
    if (begin >= end) {
        return;
    }
    for (unsigned at = threadIdx.x; at < SORT_RUN; at += SORT_THREADS) {
        run[at] = begin + at < end ? values[begin + at] : FLT_MAX;
    }
    for (unsigned width = 2; width <= SORT_RUN; width *= 2) {
        for (unsigned step = width / 2; step > 0; step /= 2) {
            __syncthreads();
            for (unsigned pair = threadIdx.x; pair < SORT_RUN / 2; pair += SORT_THREADS) {
                unsigned low = 2 * pair - pair % step, high = low + step;
                float one = run[low], other = run[high];
                if ((one > other) == ((low & width) == 0)) {
                    run[low] = other;
                    run[high] = one;
                }
            }
        }
    }
    __syncthreads();
    for (unsigned at = threadIdx.x; at < end - begin; at += SORT_THREADS) {
        values[begin + at] = run[at];
    }
    __syncthreads();
}

/* The two runs of a block: `one` and `other` are how long they are. False where there are none. */
struct sort_pair {
    unsigned begin, one, other;
};

static __device__ struct sort_pair sort_pair_of(const struct sort_pass &pass, int block)
{
    unsigned bucket = block / pass.pairs, end = pass.begins[bucket + 1];
    unsigned begin = pass.begins[bucket] + block % pass.pairs * 2 * pass.length;
    unsigned left = begin < end ? end - begin : 0;
    unsigned one = min(left, pass.length);
    return {begin, one, min(left - one, pass.length)};
}

static __device__ unsigned sort_tiles(struct sort_pair pair)
{
    return (pair.one + pair.other + SORT_RUN - 1) / SORT_RUN;
}

/* How many of the first run are among the first `diagonal` that come out. */
static __device__ unsigned sort_cut(const float *one, unsigned nr_one, const float *other, unsigned nr_other,
                                    unsigned diagonal)
{
    unsigned low = diagonal > nr_other ? diagonal - nr_other : 0, high = min(diagonal, nr_one);
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (one[middle] <= other[diagonal - 1 - middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static __device__ void sort_merge_tile(const struct sort_pass &pass, struct sort_pair pair, unsigned tile)
{
    __builtin_assume(__isGlobal(pass.from));
    __builtin_assume(__isGlobal(pass.to));
    const float *one = pass.from + pair.begin, *other = one + pair.one;
    unsigned nr = pair.one + pair.other, first = min(tile * SORT_RUN + threadIdx.x * SORT_EACH, nr);
    unsigned at_one = sort_cut(one, pair.one, other, pair.other, first), at_other = first - at_one;
    for (unsigned at = first; at < min(first + SORT_EACH, nr); at++) {
        bool is_one = at_one < pair.one && (at_other == pair.other || one[at_one] <= other[at_other]);
        pass.to[pair.begin + at] = is_one ? one[at_one++] : other[at_other++];
    }
}

static __global__ void sort_count_plain(struct sort_keys keys, int first_block)
{
    sort_count_block(keys, first_block + blockIdx.x);
}

static __global__ void sort_deal_plain(struct sort_keys keys, int first_block)
{
    sort_deal_block(keys, first_block + blockIdx.x);
}

static __global__ void sort_run_plain(float *values, const unsigned *begins, unsigned runs, int first_block)
{
    sort_run_block(values, begins, runs, first_block + blockIdx.x);
}

static __global__ void sort_merge_plain(struct sort_pass pass, unsigned first_tile, unsigned end_tile)
{
    struct sort_pair pair = sort_pair_of(pass, blockIdx.x);
    for (unsigned tile = first_tile; tile < min(sort_tiles(pair), end_tile); tile++) {
        sort_merge_tile(pass, pair, tile);
    }
}

template <class Loop>
__device__ void sort_merge_on(Loop *loop, struct sort_pass pass, struct sort_pair pair, unsigned tile)
{
    for (; tile < sort_tiles(pair); tile++) {
        sort_merge_tile(pass, pair, tile);
        if (loop->postTaskIfNecessary([=](Loop *loop) { sort_merge_on(loop, pass, pair, tile + 1); })) {
            return;
        }
    }
}

#endif
