/* srad_v1: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_SRAD_V1_H
#define BENCHMARKS_PROGRAMS_SRAD_V1_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one block of the reduction adds up. */
enum { NR_ITERATIONS = 5, REDUCED_AT_ONCE = 512 };

#define LAMBDA 0.5f /* how far one step goes */

/*
 * An image, column after column, and what diffusion needs beside it. north and south are the rows above and below each
 * row, west and east the columns beside each column; at an edge they are the edge itself.
 */
struct srad {
    int nr_rows, nr_columns, nr_pixels;
    int *north, *south, *west, *east;
    float *image, *coefficient;
    float *to_north, *to_south, *to_west, *to_east; /* differences to the neighbours */
    float *sums, *squares;                          /* what the reduction works on */
};

/* The speckle's scale: variance over squared mean, from the sum and the sum of squares over all pixels. */
float srad_scale(float sum, float sum_of_squares, int nr_pixels);

/* How many sums are left when each REDUCED_AT_ONCE of `nr` have become one. */
static inline int srad_nr_reduced(int nr)
{
    return (nr + REDUCED_AT_ONCE - 1) / REDUCED_AT_ONCE;
}

/* All steps of a round, in place: image = exp(image / 255), the iterations, image = 255 * log(image). */
void srad_loops(struct srad *srad);

#ifdef __cplusplus
}
#endif

#endif
