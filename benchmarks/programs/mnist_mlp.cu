/*
 * mnist_mlp, as TensorFlow's example: a network with one hidden layer learns to tell digits, batch after batch. Each
 * batch comes from the host, and each step is waited for. The digits are made up: an image is that of its class, with
 * some pixels turned round. A round is one pass over all images.
 */
#include "mnist_mlp.h"

#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

enum {
    BATCH = MLP_BATCH,
    INPUTS = MLP_INPUTS,
    HIDDEN = MLP_HIDDEN,
    CLASSES = MLP_CLASSES,
    TILE = 16,
};
static_assert(BATCH % TILE == 0 && INPUTS % TILE == 0 && HIDDEN % TILE == 0, "tiles have no rests");

static const float rate = 0.1f, most_weight = 0.05f;
static const double tolerance = 1e-4;
static size_t nr_images;
static float *images;
static int32_t *labels;
static struct mlp device, loops;

/* A block for each tile: images by units. */
__global__ void compute_hidden(struct mlp mlp)
{
    __shared__ float pixels[TILE][TILE], weights[TILE][TILE];
    const int image = blockIdx.y * TILE + threadIdx.y, unit = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int first = 0; first < INPUTS; first += TILE) {
        pixels[threadIdx.y][threadIdx.x] = mlp.images[image * INPUTS + first + threadIdx.x];
        weights[threadIdx.y][threadIdx.x] = mlp.hidden_weights[(first + threadIdx.y) * HIDDEN + unit];
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
            sum += pixels[threadIdx.y][i] * weights[i][threadIdx.x];
        }
        __syncthreads();
    }
    mlp.hidden[image * HIDDEN + unit] = fmaxf(sum + mlp.hidden_biases[unit], 0);
}

/* A block for each image, a thread for each class. */
__global__ void compute_scores(struct mlp mlp)
{
    const int image = blockIdx.x, label = threadIdx.x;
    float sum = 0;
    for (int unit = 0; unit < HIDDEN; unit++) {
        sum += mlp.hidden[image * HIDDEN + unit] * mlp.class_weights[unit * CLASSES + label];
    }
    mlp.scores[image * CLASSES + label] = sum + mlp.class_biases[label];
}

/* A thread for each image. */
__global__ void compare_with_labels(struct mlp mlp)
{
    const int image = threadIdx.x;
    float *scores = mlp.scores + image * CLASSES, most = scores[0], sum = 0;
    for (int label = 1; label < CLASSES; label++) {
        most = fmaxf(most, scores[label]);
    }
    for (int label = 0; label < CLASSES; label++) {
        scores[label] = expf(scores[label] - most);
        sum += scores[label];
    }
    for (int label = 0; label < CLASSES; label++) {
        scores[label] = (scores[label] / sum - (label == mlp.labels[image])) / BATCH;
    }
}

/* A block for each image, a thread for each unit. */
__global__ void compute_hidden_changes(struct mlp mlp)
{
    const int image = blockIdx.x, unit = threadIdx.x;
    float sum = 0;
    for (int label = 0; label < CLASSES; label++) {
        sum += mlp.scores[image * CLASSES + label] * mlp.class_weights[unit * CLASSES + label];
    }
    mlp.hidden_changes[image * HIDDEN + unit] = mlp.hidden[image * HIDDEN + unit] > 0 ? sum : 0;
}

/* A block for each class, a thread for each unit, and one for the bias. */
__global__ void learn_classes(struct mlp mlp, float rate)
{
    const int label = blockIdx.x, unit = threadIdx.x;
    float sum = 0;
    for (int image = 0; image < BATCH; image++) {
        float value = unit < HIDDEN ? mlp.hidden[image * HIDDEN + unit] : 1;
        sum += value * mlp.scores[image * CLASSES + label];
    }
    *(unit < HIDDEN ? &mlp.class_weights[unit * CLASSES + label] : &mlp.class_biases[label]) -= rate * sum;
}

/* A block for each input, and one for the biases; a thread for each unit. */
__global__ void learn_hidden(struct mlp mlp, float rate)
{
    const int input = blockIdx.x, unit = threadIdx.x;
    float sum = 0;
    for (int image = 0; image < BATCH; image++) {
        float value = input < INPUTS ? mlp.images[image * INPUTS + input] : 1;
        sum += value * mlp.hidden_changes[image * HIDDEN + unit];
    }
    *(input < INPUTS ? &mlp.hidden_weights[input * HIDDEN + unit] : &mlp.hidden_biases[unit]) -= rate * sum;
}

static void generate(void)
{
    static bool classes[CLASSES][INPUTS];
    uint64_t random = 29;
    for (auto &pixels : classes) {
        for (bool &pixel : pixels) {
            pixel = benchmark_random(&random) % 5 == 0;
        }
    }
    for (size_t image = 0; image < nr_images; image++) {
        labels[image] = (int32_t)(benchmark_random(&random) % CLASSES);
        for (int input = 0; input < INPUTS; input++) {
            bool is_turned = benchmark_random(&random) % 10 == 0;
            images[image * INPUTS + input] = classes[labels[image]][input] != is_turned;
        }
    }
}

/* All that is learned, by the sizes of its parts, and the rest, which is zero. `allocate` gives room. */
static void begin(struct mlp *mlp, void *(*allocate)(size_t nr_bytes), void (*fill)(float *weights, size_t nr))
{
    mlp->hidden_weights = (float *)allocate(INPUTS * HIDDEN * sizeof(float));
    mlp->hidden_biases = (float *)allocate(HIDDEN * sizeof(float));
    mlp->class_weights = (float *)allocate(HIDDEN * CLASSES * sizeof(float));
    mlp->class_biases = (float *)allocate(CLASSES * sizeof(float));
    mlp->images = (float *)allocate(BATCH * INPUTS * sizeof(float));
    mlp->labels = (int32_t *)allocate(BATCH * sizeof(int32_t));
    mlp->hidden = (float *)allocate(BATCH * HIDDEN * sizeof(float));
    mlp->scores = (float *)allocate(BATCH * CLASSES * sizeof(float));
    mlp->hidden_changes = (float *)allocate(BATCH * HIDDEN * sizeof(float));
    fill(mlp->hidden_weights, INPUTS * HIDDEN);
    fill(mlp->class_weights, HIDDEN * CLASSES);
}

static void *allocate_here(size_t nr_bytes)
{
    return benchmark_allocate(nr_bytes, 1);
}

static void *allocate_there(size_t nr_bytes)
{
    void *memory;
    BENCHMARK_CUDA(cudaMalloc(&memory, nr_bytes));
    BENCHMARK_CUDA(cudaMemset(memory, 0, nr_bytes));
    return memory;
}

static void fill_here(float *weights, size_t nr)
{
    uint64_t random = nr;
    for (size_t i = 0; i < nr; i++) {
        weights[i] = most_weight * (2 * benchmark_random_float(&random) - 1);
    }
}

static void fill_there(float *weights, size_t nr)
{
    float *here = (float *)benchmark_allocate(nr, sizeof(*here));
    fill_here(here, nr);
    BENCHMARK_CUDA(cudaMemcpy(weights, here, nr * sizeof(*here), cudaMemcpyHostToDevice));
    free(here);
}

static double prepare(size_t size)
{
    if (size % BATCH || size > (1u << 20)) {
        benchmark_fail("the size %zu is not a multiple of %d up to 2^20", size, BATCH);
    }
    nr_images = size;
    images = (float *)benchmark_allocate(size * INPUTS, sizeof(*images));
    labels = (int32_t *)benchmark_allocate(size, sizeof(*labels));
    generate();
    begin(&loops, allocate_here, fill_here);
    if (benchmark_uses_device()) {
        begin(&device, allocate_there, fill_there);
    }
    return 1e-3 * size;
}

static void device_round(void)
{
    for (size_t first = 0; first < nr_images; first += BATCH) {
        BENCHMARK_CUDA(cudaMemcpy(device.images, images + first * INPUTS, BATCH * INPUTS * sizeof(*images),
                                  cudaMemcpyHostToDevice));
        BENCHMARK_CUDA(cudaMemcpy(device.labels, labels + first, BATCH * sizeof(*labels), cudaMemcpyHostToDevice));
        compute_hidden<<<dim3(HIDDEN / TILE, BATCH / TILE), dim3(TILE, TILE)>>>(device);
        compute_scores<<<BATCH, CLASSES>>>(device);
        compare_with_labels<<<1, BATCH>>>(device);
        compute_hidden_changes<<<BATCH, HIDDEN>>>(device);
        learn_classes<<<CLASSES, HIDDEN + 1>>>(device, rate);
        learn_hidden<<<INPUTS + 1, HIDDEN>>>(device, rate);
        BENCHMARK_CUDA(cudaGetLastError());
        BENCHMARK_CUDA(cudaDeviceSynchronize());
    }
}

static void loops_round(void)
{
    for (size_t first = 0; first < nr_images; first += BATCH) {
        memcpy(loops.images, images + first * INPUTS, BATCH * INPUTS * sizeof(*images));
        memcpy(loops.labels, labels + first, BATCH * sizeof(*labels));
        mlp_loops(&loops, rate);
    }
}

static int compare(const char *what, const float *theirs, const float *ours, size_t nr, char *why, size_t why_size)
{
    float *fetched = (float *)benchmark_allocate(nr, sizeof(*fetched));
    BENCHMARK_CUDA(cudaMemcpy(fetched, theirs, nr * sizeof(*fetched), cudaMemcpyDeviceToHost));
    int is_wrong = benchmark_compare_floats(what, fetched, ours, nr, tolerance, why, why_size);
    free(fetched);
    return is_wrong;
}

/* Weights that were learned, all of which every pixel had a part in. */
static int check(char *why, size_t why_size)
{
    return compare("hidden weight", device.hidden_weights, loops.hidden_weights, INPUTS * HIDDEN, why, why_size) ||
           compare("hidden bias", device.hidden_biases, loops.hidden_biases, HIDDEN, why, why_size) ||
           compare("class weight", device.class_weights, loops.class_weights, HIDDEN * CLASSES, why, why_size) ||
           compare("class bias", device.class_biases, loops.class_biases, CLASSES, why, why_size);
}

static void release_each(const struct mlp *mlp, void (*release)(void *memory))
{
    for (float *memory : {mlp->hidden_weights, mlp->hidden_biases, mlp->class_weights, mlp->class_biases, mlp->images,
                          mlp->hidden, mlp->scores, mlp->hidden_changes}) {
        release(memory);
    }
    release(mlp->labels);
}

static void release(void)
{
    release_each(&loops, free);
    if (benchmark_uses_device()) {
        release_each(&device, [](void *memory) { BENCHMARK_CUDA(cudaFree(memory)); });
    }
    free(images);
    free(labels);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "mnist_mlp",
        .summary = "a network with a hidden layer that learns to tell digits, batch after batch",
        .unit = "kimages/s",
        .default_size = 512,
        .size_help = "images, a multiple of 64",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
