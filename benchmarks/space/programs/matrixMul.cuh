/* matrixMul: a product of square matrices by tiles in shared memory, one tile of the product a block. */
#ifndef BENCHMARKS_SPACE_MATRIXMUL_CUH
#define BENCHMARKS_SPACE_MATRIXMUL_CUH

#include "program.cuh"

enum { MATRIX_TILE = 16 };

struct matrix_view {
    int size;
    const float *left, *right;
    float *product;

    __device__ void block(unsigned block, unsigned) const
    {
        __shared__ float lefts[MATRIX_TILE][MATRIX_TILE], rights[MATRIX_TILE][MATRIX_TILE];
        const int tiles = size / MATRIX_TILE, x = threadIdx.x % MATRIX_TILE, y = threadIdx.x / MATRIX_TILE;
        const int column = block % tiles * MATRIX_TILE + x, row = block / tiles * MATRIX_TILE + y;
        float sum = 0;
        for (int tile = 0; tile < size; tile += MATRIX_TILE) {
            lefts[y][x] = left[row * size + tile + x];
            rights[y][x] = right[(tile + y) * size + column];
            __syncthreads();
            for (int at = 0; at < MATRIX_TILE; at++) {
                sum += lefts[y][at] * rights[at][x];
            }
            __syncthreads();
        }
        product[row * size + column] = sum;
    }

    void loops(unsigned) const
    {
        for (int row = 0; row < size; row++) {
            for (int column = 0; column < size; column++) {
                double sum = 0;
                for (int at = 0; at < size; at++) {
                    sum += (double)left[row * size + at] * right[at * size + column];
                }
                product[row * size + column] = (float)sum;
            }
        }
    }
};

/* Matrices of `size` tiles each way. */
static std::unique_ptr<program> make_matrix(int size)
{
    auto made = new program_of<matrix_view>("matrixMul", size * size, 1);
    const int edge = size * MATRIX_TILE;
    auto left = made->make<float>((size_t)edge * edge);
    auto right = made->make<float>((size_t)edge * edge);
    auto product = made->make<float>((size_t)edge * edge, 1e-5);
    uint64_t random = 1;
    for (size_t at = 0; at < left.nr; at++) {
        left[HOST][at] = drawn(&random);
        right[HOST][at] = drawn(&random);
    }
    return finished(made, [&](int side) { return matrix_view{edge, left[side], right[side], product[side]}; });
}

#endif
