/* FFT: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_FFT_H
#define BENCHMARKS_PROGRAMS_FFT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FFT_LENGTH = 512, FFT_HALF = FFT_LENGTH / 2 };

struct fft_number {
    float real, imaginary;
};

/*
 * Of each of so many arrays of FFT_LENGTH. turns[i] is e to the power of -2 pi i / FFT_LENGTH. With a sign of 1 the
 * transform, with -1 its inverse, which is divided by FFT_LENGTH.
 */
void fft_loops(struct fft_number *to, const struct fft_number *from, size_t nr_arrays, const struct fft_number *turns,
               float sign);

#ifdef __cplusplus
}
#endif

#endif
