/* alexnet: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_ALEXNET_H
#define BENCHMARKS_PROGRAMS_ALEXNET_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum alexnet_kind {
    ALEXNET_CONVOLUTION, /* and the greater of the result and 0 */
    ALEXNET_POOLING,     /* the greatest of a window */
    ALEXNET_SCORES,      /* a convolution whose results stay as they are */
};

/* From squares of `in_edge` to squares of `out_edge`, channel by channel. Outside of a square all is 0. */
struct alexnet_layer {
    enum alexnet_kind kind;
    int in_channels, in_edge, out_channels, out_edge, window, stride, border;
};

/*
 * Images in `from` stand one after the other, and so do results. Weights stand result by result, each channel by
 * channel, row by row, with a bias behind them.
 */
void alexnet_loops(const struct alexnet_layer *layer, float *to, const float *from, const float *weights,
                   size_t nr_images);

#ifdef __cplusplus
}
#endif

#endif
