/* srad_v1 in C: the kernels one after another, each a loop over the columns. */
#include <math.h>

#include "srad_v1.h"

float srad_scale(float sum, float sum_of_squares, int nr_pixels)
{
    float mean = sum / nr_pixels;
    float variance = sum_of_squares / nr_pixels - mean * mean;
    return variance / (mean * mean);
}

static void extract(struct srad *srad)
{
#pragma omp parallel for
    for (int i = 0; i < srad->nr_pixels; i++) {
        srad->image[i] = expf(srad->image[i] / 255);
    }
}

static void compress(struct srad *srad)
{
#pragma omp parallel for
    for (int i = 0; i < srad->nr_pixels; i++) {
        srad->image[i] = logf(srad->image[i]) * 255;
    }
}

static void prepare_sums(struct srad *srad)
{
#pragma omp parallel for
    for (int i = 0; i < srad->nr_pixels; i++) {
        srad->sums[i] = srad->image[i];
        srad->squares[i] = srad->image[i] * srad->image[i];
    }
}

/* Adds up each REDUCED_AT_ONCE of the `nr` sums that stand `stride` apart; the result is where the first one was. */
static void reduce(struct srad *srad, int nr, int stride)
{
#pragma omp parallel for
    for (int begin = 0; begin < nr; begin += REDUCED_AT_ONCE) {
        int end = nr - begin < REDUCED_AT_ONCE ? nr : begin + REDUCED_AT_ONCE;
        float sum = 0, square = 0;
        for (int i = begin; i < end; i++) {
            sum += srad->sums[i * stride];
            square += srad->squares[i * stride];
        }
        srad->sums[begin * stride] = sum;
        srad->squares[begin * stride] = square;
    }
}

static float scale_of(struct srad *srad)
{
    prepare_sums(srad);
    for (int nr = srad->nr_pixels, stride = 1; nr > 1; nr = srad_nr_reduced(nr), stride *= REDUCED_AT_ONCE) {
        reduce(srad, nr, stride);
    }
    return srad_scale(srad->sums[0], srad->squares[0], srad->nr_pixels);
}

/* The differences to the neighbours and, from them, how much of them diffusion lets through. */
static void differentiate(struct srad *srad, float scale)
{
    const float *image = srad->image;
    const int nr_rows = srad->nr_rows;
#pragma omp parallel for
    for (int column = 0; column < srad->nr_columns; column++) {
        for (int row = 0; row < nr_rows; row++) {
            int i = column * nr_rows + row;
            float pixel = image[i];
            float north = image[srad->north[row] + nr_rows * column] - pixel;
            float south = image[srad->south[row] + nr_rows * column] - pixel;
            float west = image[row + nr_rows * srad->west[column]] - pixel;
            float east = image[row + nr_rows * srad->east[column]] - pixel;
            float gradient = (north * north + south * south + west * west + east * east) / (pixel * pixel);
            float laplacian = (north + south + west + east) / pixel;
            float numerator = 0.5f * gradient - 0.0625f * (laplacian * laplacian);
            float denominator = 1 + 0.25f * laplacian;
            float variation = numerator / (denominator * denominator);
            float coefficient = 1 / (1 + (variation - scale) / (scale * (1 + scale)));
            srad->coefficient[i] = coefficient < 0 ? 0 : coefficient > 1 ? 1 : coefficient;
            srad->to_north[i] = north;
            srad->to_south[i] = south;
            srad->to_west[i] = west;
            srad->to_east[i] = east;
        }
    }
}

static void diffuse(struct srad *srad)
{
    const float *coefficient = srad->coefficient;
    const int nr_rows = srad->nr_rows;
#pragma omp parallel for
    for (int column = 0; column < srad->nr_columns; column++) {
        for (int row = 0; row < nr_rows; row++) {
            int i = column * nr_rows + row;
            float here = coefficient[i];
            float south = coefficient[srad->south[row] + nr_rows * column];
            float east = coefficient[row + nr_rows * srad->east[column]];
            float divergence = here * srad->to_north[i] + south * srad->to_south[i] + here * srad->to_west[i] +
                               east * srad->to_east[i];
            srad->image[i] += 0.25f * LAMBDA * divergence;
        }
    }
}

void srad_loops(struct srad *srad)
{
    extract(srad);
    for (int iteration = 0; iteration < NR_ITERATIONS; iteration++) {
        differentiate(srad, scale_of(srad));
        diffuse(srad);
    }
    compress(srad);
}
