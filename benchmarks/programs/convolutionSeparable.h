/* convolutionSeparable: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_CONVOLUTIONSEPARABLE_H
#define BENCHMARKS_PROGRAMS_CONVOLUTIONSEPARABLE_H

#ifdef __cplusplus
extern "C" {
#endif

enum { RADIUS = 8, NR_TAPS = 2 * RADIUS + 1 };

/* Both convolve an image of `width` times `height` pixels, outside of which everything is 0. */
void convolve_rows_loops(float *to, const float *from, const float taps[NR_TAPS], int width, int height);
void convolve_columns_loops(float *to, const float *from, const float taps[NR_TAPS], int width, int height);

#ifdef __cplusplus
}
#endif

#endif
