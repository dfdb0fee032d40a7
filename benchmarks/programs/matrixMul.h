/* matrixMul: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_MATRIXMUL_H
#define BENCHMARKS_PROGRAMS_MATRIXMUL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TILE = 32 };

/* c = a * b; square matrices of n rows, row after row, n a multiple of TILE. */
void matrix_mul_loops(float *c, const float *a, const float *b, size_t n);

#ifdef __cplusplus
}
#endif

#endif
