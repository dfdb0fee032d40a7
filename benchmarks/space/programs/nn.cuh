/* nn: the distance of each record to a place, and of each block's records the nearest. */
#ifndef BENCHMARKS_SPACE_NN_CUH
#define BENCHMARKS_SPACE_NN_CUH

#include "program.cuh"

enum { NN_EACH = 16, NN_BLOCK = NN_EACH * THREADS };

struct nn_place {
    float latitude, longitude;
};

struct nn_view {
    int nr_blocks;
    struct nn_place target;
    const struct nn_place *records;
    float *distances, *nearest;

    __host__ __device__ float distance(size_t at) const
    {
        float north = records[at].latitude - target.latitude, east = records[at].longitude - target.longitude;
        return distances[at] = sqrtf(north * north + east * east);
    }

    __device__ void block(unsigned block, unsigned) const
    {
        __shared__ float leasts[THREADS];
        float least = INFINITY;
        for (int each = 0; each < NN_EACH; each++) {
            least = fminf(least, distance((size_t)block * NN_BLOCK + each * THREADS + threadIdx.x));
        }
        leasts[threadIdx.x] = least;
        for (int half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) {
                leasts[threadIdx.x] = fminf(leasts[threadIdx.x], leasts[threadIdx.x + half]);
            }
        }
        if (threadIdx.x == 0) {
            nearest[block] = leasts[0];
        }
    }

    void loops(unsigned) const
    {
        for (int block = 0; block < nr_blocks; block++) {
            nearest[block] = INFINITY;
            for (int at = 0; at < NN_BLOCK; at++) {
                nearest[block] = fminf(nearest[block], distance((size_t)block * NN_BLOCK + at));
            }
        }
    }
};

/* `size` blocks of records. */
static std::unique_ptr<program> make_nn(int size)
{
    auto made = new program_of<nn_view>("nn", size, 1);
    auto records = made->make<struct nn_place>((size_t)size * NN_BLOCK);
    auto distances = made->make<float>(records.nr, 1e-5);
    auto nearest = made->make<float>(size, 1e-5);
    uint64_t random = 1;
    for (size_t at = 0; at < records.nr; at++) {
        records[HOST][at] = {90 * drawn(&random), 180 * drawn(&random)};
    }
    return finished(made,
                    [&](int side) { return nn_view{size, {30, 90}, records[side], distances[side], nearest[side]}; });
}

#endif
