/* The kernels of mnist_mlp.cu as plain loops, one function for each of them. */
#include <math.h>

#include "mnist_mlp.h"

enum { BATCH = MLP_BATCH, INPUTS = MLP_INPUTS, HIDDEN = MLP_HIDDEN, CLASSES = MLP_CLASSES };

/* What stands in a row of weights lies together, so that the innermost loop runs along it. */
static void compute_hidden(const struct mlp *mlp)
{
#pragma omp parallel for
    for (int image = 0; image < BATCH; image++) {
        float *hidden = mlp->hidden + image * HIDDEN;
        for (int unit = 0; unit < HIDDEN; unit++) {
            hidden[unit] = 0;
        }
        for (int input = 0; input < INPUTS; input++) {
            float pixel = mlp->images[image * INPUTS + input];
            for (int unit = 0; unit < HIDDEN; unit++) {
                hidden[unit] += pixel * mlp->hidden_weights[input * HIDDEN + unit];
            }
        }
        for (int unit = 0; unit < HIDDEN; unit++) {
            hidden[unit] = fmaxf(hidden[unit] + mlp->hidden_biases[unit], 0);
        }
    }
}

static void compute_scores(const struct mlp *mlp)
{
    for (int image = 0; image < BATCH; image++) {
        for (int class = 0; class < CLASSES; class++) {
            float sum = 0;
            for (int unit = 0; unit < HIDDEN; unit++) {
                sum += mlp->hidden[image * HIDDEN + unit] * mlp->class_weights[unit * CLASSES + class];
            }
            mlp->scores[image * CLASSES + class] = sum + mlp->class_biases[class];
        }
    }
}

static void compare_with_labels(const struct mlp *mlp)
{
    for (int image = 0; image < BATCH; image++) {
        float *scores = mlp->scores + image * CLASSES, most = scores[0], sum = 0;
        for (int class = 1; class < CLASSES; class++) {
            most = fmaxf(most, scores[class]);
        }
        for (int class = 0; class < CLASSES; class++) {
            scores[class] = expf(scores[class] - most);
            sum += scores[class];
        }
        for (int class = 0; class < CLASSES; class++) {
            scores[class] = (scores[class] / sum - (class == mlp->labels[image])) / BATCH;
        }
    }
}

static void compute_hidden_changes(const struct mlp *mlp)
{
    for (int image = 0; image < BATCH; image++) {
        for (int unit = 0; unit < HIDDEN; unit++) {
            float sum = 0;
            for (int class = 0; class < CLASSES; class++) {
                sum += mlp->scores[image * CLASSES + class] * mlp->class_weights[unit * CLASSES + class];
            }
            mlp->hidden_changes[image * HIDDEN + unit] = mlp->hidden[image * HIDDEN + unit] > 0 ? sum : 0;
        }
    }
}

static void learn_classes(const struct mlp *mlp, float rate)
{
    for (int unit = 0; unit <= HIDDEN; unit++) {
        for (int class = 0; class < CLASSES; class++) {
            float *weight = unit < HIDDEN ? &mlp->class_weights[unit * CLASSES + class] : &mlp->class_biases[class];
            float sum = 0;
            for (int image = 0; image < BATCH; image++) {
                float value = unit < HIDDEN ? mlp->hidden[image * HIDDEN + unit] : 1;
                sum += value * mlp->scores[image * CLASSES + class];
            }
            *weight -= rate * sum;
        }
    }
}

static void learn_hidden(const struct mlp *mlp, float rate)
{
#pragma omp parallel for
    for (int input = 0; input <= INPUTS; input++) {
        float *weights = input < INPUTS ? mlp->hidden_weights + input * HIDDEN : mlp->hidden_biases;
        float sums[HIDDEN] = {0};
        for (int image = 0; image < BATCH; image++) {
            float value = input < INPUTS ? mlp->images[image * INPUTS + input] : 1;
            for (int unit = 0; unit < HIDDEN; unit++) {
                sums[unit] += value * mlp->hidden_changes[image * HIDDEN + unit];
            }
        }
        for (int unit = 0; unit < HIDDEN; unit++) {
            weights[unit] -= rate * sums[unit];
        }
    }
}

void mlp_loops(const struct mlp *mlp, float rate)
{
    compute_hidden(mlp);
    compute_scores(mlp);
    compare_with_labels(mlp);
    compute_hidden_changes(mlp);
    learn_classes(mlp, rate);
    learn_hidden(mlp, rate);
}
