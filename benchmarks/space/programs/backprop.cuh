/* backprop: a layer of a network of 16 hidden units, forward with a sum in each block, and back, which changes its
 * weights. */
#ifndef BENCHMARKS_SPACE_BACKPROP_CUH
#define BENCHMARKS_SPACE_BACKPROP_CUH

#include "program.cuh"

enum {
    HIDDEN = 16,
    BACKPROP_ROWS = THREADS / HIDDEN,
    BACKPROP_EACH = 8,
    BACKPROP_BLOCK = BACKPROP_EACH * BACKPROP_ROWS
};

struct backprop_view {
    int nr_blocks;
    const float *inputs, *deltas;
    float *weights, *momenta; /* of each input to each hidden unit, and how they changed last */
    float *sums;              /* of each block, for each hidden unit */

    __host__ __device__ void change(int input, int unit) const
    {
        size_t at = (size_t)input * HIDDEN + unit;
        float moved = 0.3f * deltas[unit] * inputs[input] + 0.3f * momenta[at];
        weights[at] += moved;
        momenta[at] = moved;
    }

    __device__ void forward(unsigned block) const
    {
        __shared__ float partial[BACKPROP_ROWS][HIDDEN];
        const int unit = threadIdx.x % HIDDEN, row = threadIdx.x / HIDDEN;
        float sum = 0;
        for (int each = 0; each < BACKPROP_EACH; each++) {
            int input = block * BACKPROP_BLOCK + each * BACKPROP_ROWS + row;
            sum += inputs[input] * weights[(size_t)input * HIDDEN + unit];
        }
        partial[row][unit] = sum;
        for (int half = BACKPROP_ROWS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (row < half) {
                partial[row][unit] += partial[row + half][unit];
            }
        }
        if (row == 0) {
            sums[block * HIDDEN + unit] = partial[0][unit];
        }
    }

    __device__ void block(unsigned block, unsigned phase) const
    {
        if (phase % 2 == 0) {
            forward(block);
            return;
        }
        for (int each = 0; each < BACKPROP_EACH; each++) {
            change(block * BACKPROP_BLOCK + each * BACKPROP_ROWS + threadIdx.x / HIDDEN, threadIdx.x % HIDDEN);
        }
    }

    void loops(unsigned phase) const
    {
        if (phase % 2 == 0) {
            std::fill(sums, sums + nr_blocks * HIDDEN, 0.0f);
        }
        for (int input = 0; input < nr_blocks * BACKPROP_BLOCK; input++) {
            for (int unit = 0; unit < HIDDEN; unit++) {
                if (phase % 2) {
                    change(input, unit);
                } else {
                    sums[input / BACKPROP_BLOCK * HIDDEN + unit] +=
                        inputs[input] * weights[(size_t)input * HIDDEN + unit];
                }
            }
        }
    }
};

/* `size` blocks of inputs. */
static std::unique_ptr<program> make_backprop(int size)
{
    auto made = new program_of<backprop_view>("backprop", size, 4);
    auto inputs = made->make<float>((size_t)size * BACKPROP_BLOCK);
    auto deltas = made->make<float>(HIDDEN);
    auto weights = made->make<float>(inputs.nr * HIDDEN, 1e-5);
    auto momenta = made->make<float>(inputs.nr * HIDDEN, 1e-5);
    auto sums = made->make<float>((size_t)size * HIDDEN, 1e-4);
    uint64_t random = 1;
    for (size_t at = 0; at < weights.nr; at++) {
        weights[HOST][at] = drawn(&random) - 0.5f;
    }
    for (size_t at = 0; at < inputs.nr; at++) {
        inputs[HOST][at] = drawn(&random);
    }
    for (size_t at = 0; at < HIDDEN; at++) {
        deltas[HOST][at] = 0.01f * (drawn(&random) - 0.5f);
    }
    return finished(made, [&](int side) {
        return backprop_view{size, inputs[side], deltas[side], weights[side], momenta[side], sums[side]};
    });
}

#endif
