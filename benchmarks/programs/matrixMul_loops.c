/* matrixMul in C: tile after tile of the product, each the sum of products of tiles, as the blocks of the kernel do it.
 */
#include <string.h>

#include "matrixMul.h"

/* sum += a * b for one tile of each. */
static void multiply_tiles(float sum[TILE][TILE], const float *a, const float *b, size_t n)
{
    for (size_t row = 0; row < TILE; row++) {
        for (size_t k = 0; k < TILE; k++) {
            for (size_t column = 0; column < TILE; column++) {
                sum[row][column] += a[row * n + k] * b[k * n + column];
            }
        }
    }
}

void matrix_mul_loops(float *c, const float *a, const float *b, size_t n)
{
#pragma omp parallel for collapse(2)
    for (size_t row = 0; row < n; row += TILE) {
        for (size_t column = 0; column < n; column += TILE) {
            float sum[TILE][TILE] = {{0}};
            for (size_t k = 0; k < n; k += TILE) {
                multiply_tiles(sum, a + row * n + k, b + k * n + column, n);
            }
            for (size_t i = 0; i < TILE; i++) {
                memcpy(c + (row + i) * n + column, sum[i], sizeof(sum[i]));
            }
        }
    }
}
