/*
 * alexnet, as TensorFlow's benchmarks have it: batches of images go from the host through five convolutions, with
 * pooling behind three of them, and three layers that are connected with all of their inputs; the scores go back. These
 * are layers as Krizhevsky, Sutskever and Hinton have them ("ImageNet classification with deep convolutional neural
 * networks", 2012), with a quarter of the channels and images of 67 by 67; responses are not normalised. Images and
 * weights are random.
 */
#include "alexnet.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

enum { NR_THREADS = 128, EDGE = 67, CHANNELS = 3, CLASSES = 100 };

static const struct alexnet_layer layers[] = {
    {ALEXNET_CONVOLUTION, CHANNELS, EDGE, 24, 15, 11, 4, 0},
    {ALEXNET_POOLING, 24, 15, 24, 7, 3, 2, 0},
    {ALEXNET_CONVOLUTION, 24, 7, 64, 7, 5, 1, 2},
    {ALEXNET_POOLING, 64, 7, 64, 3, 3, 2, 0},
    {ALEXNET_CONVOLUTION, 64, 3, 96, 3, 3, 1, 1},
    {ALEXNET_CONVOLUTION, 96, 3, 96, 3, 3, 1, 1},
    {ALEXNET_CONVOLUTION, 96, 3, 64, 3, 3, 1, 1},
    {ALEXNET_POOLING, 64, 3, 64, 1, 3, 2, 0},
    {ALEXNET_CONVOLUTION, 64, 1, 1024, 1, 1, 1, 0},
    {ALEXNET_CONVOLUTION, 1024, 1, 1024, 1, 1, 1, 0},
    {ALEXNET_SCORES, 1024, 1, CLASSES, 1, 1, 1, 0},
};
enum { NR_LAYERS = sizeof(layers) / sizeof(layers[0]) };

/* Results of layers go to and fro between two rooms. */
struct network {
    float *weights[NR_LAYERS], *images, *rooms[2];
};

static const double tolerance = 1e-4;
static size_t nr_images;
static float *fetched_scores;
static struct network here, there;

static size_t in_floats(const struct alexnet_layer *layer)
{
    return (size_t)layer->in_channels * layer->in_edge * layer->in_edge;
}

static size_t out_floats(const struct alexnet_layer *layer)
{
    return (size_t)layer->out_channels * layer->out_edge * layer->out_edge;
}

/* Of one result, with its bias. */
static size_t nr_weights_each(const struct alexnet_layer *layer)
{
    return (size_t)layer->in_channels * layer->window * layer->window + 1;
}

/* A thread for each result of each image. */
__global__ void convolve(struct alexnet_layer layer, float *to, const float *from, const float *weights, size_t nr)
{
    const size_t at = (size_t)blockIdx.x * NR_THREADS + threadIdx.x;
    if (at >= nr) {
        return;
    }
    const int edge = layer.in_edge, window = layer.window, square = layer.out_edge * layer.out_edge;
    const int within = at % square, channel_out = at / square % layer.out_channels;
    const int row = within / layer.out_edge * layer.stride - layer.border;
    const int column = within % layer.out_edge * layer.stride - layer.border;
    const float *image = from + at / square / layer.out_channels * layer.in_channels * edge * edge;
    float sum = 0;
    weights += channel_out * (layer.in_channels * window * window + 1);
    for (int channel = 0; channel < layer.in_channels; channel++) {
        for (int y = max(0, -row); y < min(window, edge - row); y++) {
            for (int x = max(0, -column); x < min(window, edge - column); x++) {
                sum += image[(channel * edge + row + y) * edge + column + x] *
                       weights[(channel * window + y) * window + x];
            }
        }
    }
    sum += weights[layer.in_channels * window * window];
    to[at] = layer.kind == ALEXNET_SCORES ? sum : fmaxf(sum, 0);
}

/* A thread for each result of each image. */
__global__ void pool(struct alexnet_layer layer, float *to, const float *from, size_t nr)
{
    const size_t at = (size_t)blockIdx.x * NR_THREADS + threadIdx.x;
    if (at >= nr) {
        return;
    }
    const int edge = layer.in_edge, square = layer.out_edge * layer.out_edge, within = at % square;
    const int row = within / layer.out_edge * layer.stride, column = within % layer.out_edge * layer.stride;
    const float *channel = from + at / square * edge * edge;
    float most = -FLT_MAX;
    for (int y = 0; y < layer.window; y++) {
        for (int x = 0; x < layer.window; x++) {
            most = fmaxf(most, channel[(row + y) * edge + column + x]);
        }
    }
    to[at] = most;
}

/* So large that results of all layers are about as large. */
static void fill_weights(const struct alexnet_layer *layer, float *weights)
{
    size_t nr_each = nr_weights_each(layer), nr = nr_each * layer->out_channels;
    uint64_t random = nr;
    const float most = sqrtf(6.0f / (nr_each - 1));
    for (size_t i = 0; i < nr; i++) {
        weights[i] = most * (2 * benchmark_random_float(&random) - 1);
    }
}

static float *on_device(const float *floats, size_t nr)
{
    float *memory;
    BENCHMARK_CUDA(cudaMalloc(&memory, nr * sizeof(*memory)));
    BENCHMARK_CUDA(cudaMemcpy(memory, floats, nr * sizeof(*memory), cudaMemcpyHostToDevice));
    return memory;
}

static double prepare(size_t size)
{
    uint64_t random = 31;
    size_t most = 0, nr_pixels = size * in_floats(&layers[0]);
    if (size > (1u << 16)) {
        benchmark_fail("at most 2^16 images of a batch");
    }
    nr_images = size;
    here.images = (float *)benchmark_allocate(nr_pixels, sizeof(float));
    for (size_t i = 0; i < nr_pixels; i++) {
        here.images[i] = benchmark_random_float(&random);
    }
    for (const struct alexnet_layer &layer : layers) {
        most = std::max(most, size * out_floats(&layer));
    }
    for (float *&room : here.rooms) {
        room = (float *)benchmark_allocate(most, sizeof(float));
    }
    fetched_scores = (float *)benchmark_allocate(size * CLASSES, sizeof(float));
    if (benchmark_uses_device()) {
        there.images = on_device(here.images, nr_pixels);
        there.rooms[0] = on_device(here.rooms[0], most);
        there.rooms[1] = on_device(here.rooms[1], most);
    }
    for (int number = 0; number < NR_LAYERS; number++) {
        const struct alexnet_layer *layer = &layers[number];
        if (layer->kind != ALEXNET_POOLING) {
            size_t nr = nr_weights_each(layer) * layer->out_channels;
            here.weights[number] = (float *)benchmark_allocate(nr, sizeof(float));
            fill_weights(layer, here.weights[number]);
            there.weights[number] = benchmark_uses_device() ? on_device(here.weights[number], nr) : NULL;
        }
    }
    return 1e-3 * size;
}

static void device_round(void)
{
    const float *from = there.images;
    BENCHMARK_CUDA(cudaMemcpy(there.images, here.images, nr_images * in_floats(&layers[0]) * sizeof(float),
                              cudaMemcpyHostToDevice));
    for (int number = 0; number < NR_LAYERS; number++) {
        const struct alexnet_layer *layer = &layers[number];
        size_t nr = nr_images * out_floats(layer), nr_blocks = (nr + NR_THREADS - 1) / NR_THREADS;
        float *to = there.rooms[number % 2];
        if (layer->kind == ALEXNET_POOLING) {
            pool<<<nr_blocks, NR_THREADS>>>(*layer, to, from, nr);
        } else {
            convolve<<<nr_blocks, NR_THREADS>>>(*layer, to, from, there.weights[number], nr);
        }
        BENCHMARK_CUDA(cudaGetLastError());
        from = to;
    }
    BENCHMARK_CUDA(cudaMemcpy(fetched_scores, from, nr_images * CLASSES * sizeof(float), cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    const float *from = here.images;
    for (int number = 0; number < NR_LAYERS; number++) {
        alexnet_loops(&layers[number], here.rooms[number % 2], from, here.weights[number], nr_images);
        from = here.rooms[number % 2];
    }
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("score", fetched_scores, here.rooms[(NR_LAYERS - 1) % 2], nr_images * CLASSES,
                                    tolerance, why, why_size);
}

static void release(void)
{
    for (int number = 0; number < NR_LAYERS; number++) {
        free(here.weights[number]);
        if (there.weights[number]) {
            BENCHMARK_CUDA(cudaFree(there.weights[number]));
        }
    }
    if (benchmark_uses_device()) {
        for (float *memory : {there.images, there.rooms[0], there.rooms[1]}) {
            BENCHMARK_CUDA(cudaFree(memory));
        }
    }
    for (float *memory : {here.images, here.rooms[0], here.rooms[1], fetched_scores}) {
        free(memory);
    }
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "alexnet",
        .summary = "batches of images through a network of eight layers, five of which convolve",
        .unit = "kimages/s",
        .default_size = 8,
        .size_help = "images of a batch",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
