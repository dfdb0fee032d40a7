/*
 * The parameterised micro-benchmark (the paper's algorithm 3): each warp loads its part of an array and computes with
 * what it loaded. stride: between what adjacent threads load, in words. overlap: which part of its own a warp shares
 * with the one before. iterations: how often it computes, LENGTH multiplications and additions each time. The array is
 * as large as it is: places wrap around.
 */
#ifndef BENCHMARKS_SPACE_MICRO_CUH
#define BENCHMARKS_SPACE_MICRO_CUH

#include "program.cuh"

enum { MICRO_SECTIONS = 2, MICRO_LOADS = 8, MICRO_LENGTH = 32, WARP = 32 };

struct micro_view {
    unsigned mask;                /* of places in the array: a power of two, less 1 */
    int stride, step, iterations; /* step: from the beginning of one warp's part to the next one's */
    unsigned nr_blocks;
    const float *data;
    float *results; /* a sum of each warp */

    __host__ __device__ float thread(unsigned warp, unsigned lane) const
    {
        float sum = 0;
        for (int section = 0; section < MICRO_SECTIONS; section++) {
            unsigned first = (warp * MICRO_SECTIONS + section) * step + lane * stride;
            for (int load = 0; load < MICRO_LOADS; load++) {
                sum += data[(first + load * WARP * stride) & mask];
            }
            for (int each = 0; each < iterations * MICRO_LENGTH; each++) {
                sum = sum * 0.999f + 0.001f;
            }
        }
        return sum;
    }

    __device__ void block(unsigned block, unsigned) const
    {
        unsigned at = block * THREADS + threadIdx.x;
        float sum = thread(at / WARP, at % WARP);
        for (int distance = WARP / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(~0u, sum, distance);
        }
        if (at % WARP == 0) {
            results[at / WARP] = sum;
        }
    }

    void loops(unsigned) const
    {
        for (unsigned warp = 0; warp < nr_blocks * THREADS / WARP; warp++) {
            results[warp] = 0;
            for (unsigned lane = 0; lane < WARP; lane++) {
                results[warp] += thread(warp, lane);
            }
        }
    }
};

struct micro_shape {
    int stride;
    float overlap;
    int iterations;
};

/* `nr_words` is a power of two. The array is shared among all instances: it is only read. */
static std::unique_ptr<program> make_micro(const char *name, struct micro_shape shape, unsigned nr_blocks,
                                           unsigned nr_words)
{
    auto made = new program_of<micro_view>(name, nr_blocks, 1);
    static both<float> data = {{nullptr, nullptr}, 0};
    if (data.nr == 0) {
        data = made->make<float>(nr_words);
        for (size_t at = 0; at < nr_words; at++) {
            data[HOST][at] = (float)(at % 1000) / 1000;
        }
    }
    auto results = made->make<float>((size_t)nr_blocks * THREADS / WARP, 1e-5);
    const int own = WARP * shape.stride * MICRO_LOADS, step = own - (int)(shape.overlap * (float)own);
    return finished(made, [&](int side) {
        return micro_view{nr_words - 1, shape.stride, step, shape.iterations, nr_blocks, data[side], results[side]};
    });
}

#endif
