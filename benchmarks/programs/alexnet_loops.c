/* The kernels of alexnet.cu as plain loops. */
#include <float.h>
#include <math.h>

#include "alexnet.h"

/* Rows or columns of the window that lie within the square, from `first` to below `last`. */
static void clip(const struct alexnet_layer *layer, int begin, int *first, int *last)
{
    *first = begin < 0 ? -begin : 0;
    *last = begin + layer->window > layer->in_edge ? layer->in_edge - begin : layer->window;
}

static float convolve(const struct alexnet_layer *layer, const float *image, const float *weights, int row, int column)
{
    int first_row, last_row, first_column, last_column, window = layer->window, edge = layer->in_edge;
    float sum = 0;
    row = row * layer->stride - layer->border;
    column = column * layer->stride - layer->border;
    clip(layer, row, &first_row, &last_row);
    clip(layer, column, &first_column, &last_column);
    for (int channel = 0; channel < layer->in_channels; channel++) {
        for (int y = first_row; y < last_row; y++) {
            const float *pixels = image + (channel * edge + row + y) * edge + column;
            const float *along = weights + (channel * window + y) * window;
            for (int x = first_column; x < last_column; x++) {
                sum += pixels[x] * along[x];
            }
        }
    }
    sum += weights[layer->in_channels * window * window];
    return layer->kind == ALEXNET_SCORES ? sum : fmaxf(sum, 0);
}

static float greatest(const struct alexnet_layer *layer, const float *square, int row, int column)
{
    float most = -FLT_MAX;
    for (int y = 0; y < layer->window; y++) {
        for (int x = 0; x < layer->window; x++) {
            most = fmaxf(most, square[(row * layer->stride + y) * layer->in_edge + column * layer->stride + x]);
        }
    }
    return most;
}

void alexnet_loops(const struct alexnet_layer *layer, float *to, const float *from, const float *weights,
                   size_t nr_images)
{
    size_t in_square = (size_t)layer->in_edge * layer->in_edge, nr_out = nr_images * layer->out_channels;
    size_t nr_weights = (size_t)layer->in_channels * layer->window * layer->window + 1;
#pragma omp parallel for
    for (size_t out = 0; out < nr_out; out++) {
        size_t channel = out % layer->out_channels;
        const float *image = from + out / layer->out_channels * layer->in_channels * in_square;
        float *result = to + out * layer->out_edge * layer->out_edge;
        for (int row = 0; row < layer->out_edge; row++) {
            for (int column = 0; column < layer->out_edge; column++) {
                *result++ = layer->kind == ALEXNET_POOLING
                                ? greatest(layer, image + channel * in_square, row, column)
                                : convolve(layer, image, weights + channel * nr_weights, row, column);
            }
        }
    }
}
