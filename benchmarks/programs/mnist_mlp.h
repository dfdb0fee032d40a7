/* mnist_mlp: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_MNIST_MLP_H
#define BENCHMARKS_PROGRAMS_MNIST_MLP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MLP_BATCH = 64, MLP_INPUTS = 784, MLP_HIDDEN = 128, MLP_CLASSES = 10 };

/* Of the device or of the host: what is learned, then what one batch makes of it. Matrices stand row by row. */
struct mlp {
    float *hidden_weights; /* MLP_INPUTS by MLP_HIDDEN */
    float *hidden_biases;
    float *class_weights; /* MLP_HIDDEN by MLP_CLASSES */
    float *class_biases;

    float *images; /* MLP_BATCH by MLP_INPUTS */
    int32_t *labels;
    float *hidden;         /* MLP_BATCH by MLP_HIDDEN */
    float *scores;         /* MLP_BATCH by MLP_CLASSES; then by how much the loss grows with them */
    float *hidden_changes; /* as hidden: by how much the loss grows with it */
};

/* One step down the gradient of the mean cross entropy of a batch. */
void mlp_loops(const struct mlp *mlp, float rate);

#ifdef __cplusplus
}
#endif

#endif
