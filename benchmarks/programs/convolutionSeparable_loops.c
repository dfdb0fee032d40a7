/* convolutionSeparable in C: row by row; only pixels near an edge look where the image ends. */
#include "convolutionSeparable.h"

static float near_edge(const float *from, const float taps[NR_TAPS], int at, int length, int stride)
{
    float sum = 0;
    for (int tap = 0; tap < NR_TAPS; tap++) {
        int position = at + tap - RADIUS;
        if (position >= 0 && position < length) {
            sum += taps[NR_TAPS - 1 - tap] * from[(position - at) * stride];
        }
    }
    return sum;
}

static float inside(const float *from, const float taps[NR_TAPS], int stride)
{
    float sum = 0;
    for (int tap = 0; tap < NR_TAPS; tap++) {
        sum += taps[NR_TAPS - 1 - tap] * from[(tap - RADIUS) * stride];
    }
    return sum;
}

void convolve_rows_loops(float *to, const float *from, const float taps[NR_TAPS], int width, int height)
{
#pragma omp parallel for
    for (int y = 0; y < height; y++) {
        const float *row = from + (long)y * width;
        float *result = to + (long)y * width;
        for (int x = 0; x < RADIUS; x++) {
            result[x] = near_edge(row + x, taps, x, width, 1);
        }
        for (int x = RADIUS; x < width - RADIUS; x++) {
            result[x] = inside(row + x, taps, 1);
        }
        for (int x = width - RADIUS; x < width; x++) {
            result[x] = near_edge(row + x, taps, x, width, 1);
        }
    }
}

void convolve_columns_loops(float *to, const float *from, const float taps[NR_TAPS], int width, int height)
{
#pragma omp parallel for
    for (int y = 0; y < height; y++) {
        const float *row = from + (long)y * width;
        float *result = to + (long)y * width;
        if (y < RADIUS || y >= height - RADIUS) {
            for (int x = 0; x < width; x++) {
                result[x] = near_edge(row + x, taps, y, height, width);
            }
        } else {
            for (int x = 0; x < width; x++) {
                result[x] = inside(row + x, taps, width);
            }
        }
    }
}
