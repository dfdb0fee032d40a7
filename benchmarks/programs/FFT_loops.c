/* The kernel of FFT.cu as plain loops, step by step. */
#include <string.h>

#include "FFT.h"

/* One step: groups of `nr_together` results that belong together become groups of twice as many. */
static void combine(struct fft_number *to, const struct fft_number *from, size_t nr_together,
                    const struct fft_number *turns, float sign)
{
    for (size_t i = 0; i < FFT_HALF; i++) {
        size_t within = i & (nr_together - 1), before = i - within;
        struct fft_number a = from[i], b = from[i + FFT_HALF], turn = turns[before];
        float real = a.real - b.real, imaginary = a.imaginary - b.imaginary;
        struct fft_number *even = &to[2 * before + within], *odd = even + nr_together;
        turn.imaginary *= sign;
        even->real = a.real + b.real;
        even->imaginary = a.imaginary + b.imaginary;
        odd->real = real * turn.real - imaginary * turn.imaginary;
        odd->imaginary = real * turn.imaginary + imaginary * turn.real;
    }
}

void fft_loops(struct fft_number *to, const struct fft_number *from, size_t nr_arrays, const struct fft_number *turns,
               float sign)
{
    float factor = sign < 0 ? 1.0f / FFT_LENGTH : 1;
#pragma omp parallel for
    for (size_t array = 0; array < nr_arrays; array++) {
        struct fft_number rooms[2][FFT_LENGTH];
        size_t room = 0;
        memcpy(rooms[0], from + array * FFT_LENGTH, sizeof(rooms[0]));
        for (size_t nr_together = 1; nr_together < FFT_LENGTH; nr_together *= 2) {
            combine(rooms[1 - room], rooms[room], nr_together, turns, sign);
            room = 1 - room;
        }
        for (size_t i = 0; i < FFT_LENGTH; i++) {
            struct fft_number *result = &to[array * FFT_LENGTH + i];
            result->real = rooms[room][i].real * factor;
            result->imaginary = rooms[room][i].imaginary * factor;
        }
    }
}
