/*
 * A product of matrices by tiles in shared memory, with barriers between the phases. Usage: matrix_mul [TILES
 * [NR_REPEATS]]
 */
#include <vector>

#include "check.h"

constexpr int tile = 16;

__global__ void matrix_mul(const float *a, const float *b, float *product, int width)
{
    __shared__ float tile_a[tile][tile];
    __shared__ float tile_b[tile][tile];
    int row = blockIdx.y * tile + threadIdx.y;
    int column = blockIdx.x * tile + threadIdx.x;
    float sum = 0.0f;
    for (int step = 0; step < width; step += tile) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * width + step + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(step + threadIdx.y) * width + column];
        __syncthreads();
        for (int k = 0; k < tile; k++) {
            sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        }
        __syncthreads();
    }
    product[row * width + column] = sum;
}

int main(int argc, char **argv)
{
    int nr_tiles = argc > 1 ? std::atoi(argv[1]) : 6;
    int nr_repeats = argc > 2 ? std::atoi(argv[2]) : 1;
    int width = nr_tiles * tile;
    std::vector<float> a(width * width), b(width * width), product(width * width);
    for (int i = 0; i < width * width; i++) {
        a[i] = float(i % 7 - 3); /* small integers: exact in any order of summation */
        b[i] = float(i % 5 - 2);
    }
    float *device[3];
    size_t bytes = a.size() * sizeof(float);
    for (float *&pointer : device) {
        CHECK(cudaMalloc(&pointer, bytes));
    }
    CHECK(cudaMemcpy(device[0], a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device[1], b.data(), bytes, cudaMemcpyHostToDevice));
    for (int repeat = 0; repeat < nr_repeats; repeat++) {
        matrix_mul<<<dim3(nr_tiles, nr_tiles), dim3(tile, tile)>>>(device[0], device[1], device[2], width);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(product.data(), device[2], bytes, cudaMemcpyDeviceToHost));
    int nr_wrong = 0;
    double total = 0;
    for (int row = 0; row < width; row++) {
        for (int column = 0; column < width; column++) {
            float expected = 0.0f;
            for (int k = 0; k < width; k++) {
                expected += a[row * width + k] * b[k * width + column];
            }
            nr_wrong += product[row * width + column] != expected;
            total += product[row * width + column] * (row - column);
        }
    }
    std::printf("%d x %d, %d wrong, checksum %.0f\n", width, width, nr_wrong, total);
    for (float *pointer : device) {
        CHECK(cudaFree(pointer));
    }
    return verdict(nr_wrong == 0);
}
