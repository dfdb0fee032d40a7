/* spmv: a sparse matrix, compressed by rows, times a vector, over and over. A warp makes a row. */
#ifndef BENCHMARKS_SPACE_SPMV_CUH
#define BENCHMARKS_SPACE_SPMV_CUH

#include "program.cuh"

enum { SPMV_LANES = 32, SPMV_EACH = 16, SPMV_ROWS = SPMV_EACH * THREADS / SPMV_LANES, SPMV_MOST = 96 };

struct spmv_view {
    int nr_rows;
    const int *begins, *columns; /* row r has the numbers from begins[r] to begins[r + 1] */
    const float *numbers;
    float *vectors[2]; /* phases go to and fro */

    __device__ void row(int row, int lane, unsigned phase) const
    {
        const float *from = from_of(vectors, phase);
        float sum = 0;
        for (int at = begins[row] + lane; at < begins[row + 1]; at += SPMV_LANES) {
            sum += numbers[at] * from[columns[at]];
        }
        for (int distance = SPMV_LANES / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(~0u, sum, distance);
        }
        if (lane == 0) {
            to_of(vectors, phase)[row] = sum;
        }
    }

    __device__ void block(unsigned block, unsigned phase) const
    {
        for (int each = 0; each < SPMV_EACH; each++) {
            row(block * SPMV_ROWS + (each * THREADS + threadIdx.x) / SPMV_LANES, threadIdx.x % SPMV_LANES, phase);
        }
    }

    void loops(unsigned phase) const
    {
        for (int row = 0; row < nr_rows; row++) {
            double sum = 0;
            for (int at = begins[row]; at < begins[row + 1]; at++) {
                sum += (double)numbers[at] * from_of(vectors, phase)[columns[at]];
            }
            to_of(vectors, phase)[row] = (float)sum;
        }
    }
};

/* `size` blocks of rows, of 1 to SPMV_MOST numbers each, the sum of a row's being 1. */
static std::unique_ptr<program> make_spmv(int size)
{
    auto made = new program_of<spmv_view>("spmv", size, 4);
    const int nr_rows = size * SPMV_ROWS;
    auto begins = made->make<int>(nr_rows + 1);
    uint64_t random = 1;
    for (int row = 0; row < nr_rows; row++) {
        begins[HOST][row + 1] = begins[HOST][row] + 1 + (int)(drawn(&random) * SPMV_MOST);
    }
    auto columns = made->make<int>(begins[HOST][nr_rows]);
    auto numbers = made->make<float>(columns.nr);
    auto first = made->make<float>(nr_rows, 1e-5);
    auto second = made->make<float>(nr_rows, 1e-5);
    for (int row = 0; row < nr_rows; row++) {
        int nr = begins[HOST][row + 1] - begins[HOST][row];
        first[HOST][row] = drawn(&random);
        for (int at = begins[HOST][row]; at < begins[HOST][row + 1]; at++) {
            columns[HOST][at] = (int)(drawn(&random) * (float)nr_rows);
            numbers[HOST][at] = 1 / (float)nr;
        }
    }
    return finished(made, [&](int side) {
        return spmv_view{nr_rows, begins[side], columns[side], numbers[side], {first[side], second[side]}};
    });
}

#endif
