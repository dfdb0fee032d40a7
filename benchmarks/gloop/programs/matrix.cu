/* A server that multiplies matrices. Of GPUnet's; a step is a tile of the product, of 32 x 32 values. */
#include "serve.cuh"

enum { TILE = 32, TILES = MATRIX_EDGE / TILE, ROWS = SERVER_THREADS / TILE };

struct matrix_tiles {
    float one[TILE][TILE], other[TILE][TILE];
};

struct matrix_service {
    static constexpr size_t message_bytes = 2 * MATRIX_BYTES, answer_bytes = MATRIX_BYTES;
    static constexpr size_t shared_bytes = sizeof(struct matrix_tiles);
    static constexpr int nr_steps = TILES * TILES;

    static __device__ void step(const unsigned char *message, unsigned char *answer, int step)
    {
        extern __shared__ float matrix_dynamic[];
        struct matrix_tiles *tiles = (struct matrix_tiles *)matrix_dynamic;
        const float *one = (const float *)message, *other = one + MATRIX_EDGE * MATRIX_EDGE;
        const int column = threadIdx.x % TILE, first_row = threadIdx.x / TILE;
        const int tile_row = step / TILES * TILE, tile_column = step % TILES * TILE;
        float sums[TILE / ROWS] = {};
        for (int along = 0; along < MATRIX_EDGE; along += TILE) {
            __syncthreads();
            for (int row = first_row; row < TILE; row += ROWS) {
                tiles->one[row][column] = one[(tile_row + row) * MATRIX_EDGE + along + column];
                tiles->other[row][column] = other[(along + row) * MATRIX_EDGE + tile_column + column];
            }
            __syncthreads();
            for (int at = 0; at < TILE; at++) {
#pragma unroll
                for (int number = 0; number < TILE / ROWS; number++) {
                    sums[number] += tiles->one[first_row + number * ROWS][at] * tiles->other[at][column];
                }
            }
        }
#pragma unroll
        for (int number = 0; number < TILE / ROWS; number++) {
            int row = tile_row + first_row + number * ROWS;
            ((float *)answer)[row * MATRIX_EDGE + tile_column + column] = sums[number];
        }
    }
};

int main(int argc, char **argv)
{
    return serve_main<matrix_service>("matrix", argc, argv);
}
