/*
 * An inference server with a small network of its own, for softgpu and GPUs: what
 * benchmarks/frameworks/torch_detection.py is for PyTorch.
 *
 *   inference [--size N] [--channels N] [--layers N] [--batch N] [--rate R | --pause-ms MS] [--random SEED]
 *             [--seconds S | --together]
 *
 * A request is a batch (1) of images of N by N pixels (64): they are copied to the device, go through the network, and
 * what the network says of each is copied back. A layer of the network (3 of them) is a convolution of 3 by 3 to N
 * channels (16), ReLU, and the largest of each 2 by 2 pixels; a dense layer makes ten numbers of what is left. Weights
 * and images follow from their place alone and are the same in every run.
 *
 * --rate: so many requests a second, at random (Poisson). They queue up, and one's time counts from its arrival.
 * --pause-ms: each request follows the end of the one before, after a pause that is exponentially distributed and that
 * long in the mean (0). Its time counts from its begin. The same seed gives the same requests.
 *
 * Requests that end within a stretch of S seconds (10) count. --together: all programs of a benchmark count in the same
 * stretch, see common.h and stretch.h.
 *
 * Prints one JSON object. Its "answers" are the numbers of the first image, its "digest" is of the bits of all: the
 * same natively and as a guest of the same device. A request that is answered otherwise than the first one ends the
 * program with status 1. Nothing is added up in an order that depends on who comes first.
 *
 * Wrong as to how fast a network can be: the convolutions take each product from memory.
 */
#include <chrono>
#include <future>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <random>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <vector>

#include "check.h"
#include "requests.h"
#include "stretch.h"

struct options {
    long size, channels, nr_layers, batch;
    double rate, pause_ms, stretch_s;
    unsigned long seed;
    bool is_together;
};

/* Floats on the device, one channel after the other, image after image. `size` is an edge in pixels. */
struct layer {
    int nr_in, nr_out, size;
    float *weights, *sums, *outputs; /* the sums after ReLU, the outputs after the 2 by 2 */
};

struct network {
    int batch;
    size_t nr_inputs; /* floats of a batch */
    float *images, *inputs;
    std::vector<struct layer> layers;
    int nr_features; /* of an image, for the dense layer */
    float *dense, *answers, *device_answers;
};

static const int nr_colours = 3;
static const int nr_classes = 10;
static const int nr_threads = 128;
static const int nr_first = 3; /* requests before any counts: kernels are loaded, and a GPU wakes up */

/* Of a place in a row of numbers, one from -1 to 1: bits mixed as in the end of MurmurHash3, after Appleby. */
__host__ __device__ static float number_at(uint32_t row, uint32_t place)
{
    uint32_t bits = place * 0x9e3779b9u + row * 0x7f4a7c15u + 1;
    bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
    bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
    bits ^= bits >> 16;
    return (float)(bits >> 8) * 0x1p-23f - 1;
}

__global__ void fill(float *weights, uint32_t nr, uint32_t row, float scale)
{
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < nr) {
        weights[place] = scale * number_at(row, place);
    }
}

/* A thread for each pixel of the sums, a row of blocks for each channel of each image. Outside of the image are zeros.
 */
__global__ void convolve(const float *inputs, struct layer layer)
{
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    const int size = layer.size, nr_pixels = size * size;
    if (pixel >= nr_pixels) {
        return;
    }
    const int row = pixel / size, column = pixel % size;
    const int channel = blockIdx.y, image = blockIdx.z;
    const float *weights = layer.weights + (size_t)channel * layer.nr_in * 9;
    inputs += (size_t)image * layer.nr_in * nr_pixels;
    float sum = 0;
    for (int from = 0; from < layer.nr_in; from++) {
        for (int y = -1; y <= 1; y++) {
            for (int x = -1; x <= 1; x++, weights++) {
                if (row + y >= 0 && row + y < size && column + x >= 0 && column + x < size) {
                    sum += *weights * inputs[pixel + y * size + x];
                }
            }
        }
        inputs += nr_pixels;
    }
    layer.sums[((size_t)image * layer.nr_out + channel) * nr_pixels + pixel] = fmaxf(sum, 0);
}

/* The largest of each 2 by 2; a last row or column that has no second is left out. */
__global__ void pool(struct layer layer)
{
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    const int half = layer.size / 2;
    if (pixel >= half * half) {
        return;
    }
    const size_t plane = (size_t)blockIdx.z * layer.nr_out + blockIdx.y;
    const float *sums =
        layer.sums + plane * layer.size * layer.size + 2 * (pixel / half) * layer.size + 2 * (pixel % half);
    layer.outputs[plane * half * half + pixel] =
        fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[layer.size], sums[layer.size + 1]));
}

/* A block for each number of each image. */
__global__ void connect(const float *features, const float *weights, int nr_features, float *answers)
{
    __shared__ float sums[nr_threads];
    const float *mine = features + (size_t)blockIdx.y * nr_features;
    weights += (size_t)blockIdx.x * nr_features;
    float sum = 0;
    for (int feature = threadIdx.x; feature < nr_features; feature += nr_threads) {
        sum += weights[feature] * mine[feature];
    }
    sums[threadIdx.x] = sum;
    for (int half = nr_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        answers[blockIdx.y * nr_classes + blockIdx.x] = sums[0];
    }
}

static float *device_floats(size_t nr)
{
    float *floats;
    CHECK(cudaMalloc((void **)&floats, nr * sizeof(float)));
    return floats;
}

static float *host_floats(size_t nr)
{
    float *floats;
    CHECK(cudaHostAlloc((void **)&floats, nr * sizeof(float), cudaHostAllocDefault));
    return floats;
}

static unsigned blocks_of(size_t nr)
{
    return (unsigned)((nr + nr_threads - 1) / nr_threads);
}

/* Weights as large as keeps numbers of one size from layer to layer, after He. */
static float *weights_of(size_t nr, uint32_t row, int nr_summed)
{
    float *weights = device_floats(nr);
    fill<<<blocks_of(nr), nr_threads>>>(weights, (uint32_t)nr, row, sqrtf(6.0f / nr_summed));
    CHECK(cudaGetLastError());
    return weights;
}

static struct network make_network(const struct options *options)
{
    struct network network = {};
    network.batch = (int)options->batch;
    network.nr_inputs = (size_t)options->batch * nr_colours * options->size * options->size;
    network.images = host_floats(network.nr_inputs);
    network.inputs = device_floats(network.nr_inputs);
    for (size_t i = 0; i < network.nr_inputs; i++) {
        network.images[i] = number_at(0, (uint32_t)i);
    }
    int nr_in = nr_colours, size = (int)options->size;
    for (long number = 1; number <= options->nr_layers; number++) {
        struct layer layer = {nr_in, (int)options->channels, size};
        const size_t nr_planes = (size_t)options->batch * layer.nr_out;
        layer.weights = weights_of((size_t)layer.nr_out * nr_in * 9, (uint32_t)number, nr_in * 9);
        layer.sums = device_floats(nr_planes * size * size);
        layer.outputs = device_floats(nr_planes * (size / 2) * (size / 2));
        network.layers.push_back(layer);
        nr_in = layer.nr_out;
        size /= 2;
    }
    network.nr_features = nr_in * size * size;
    network.dense = weights_of((size_t)nr_classes * network.nr_features, UINT32_MAX, network.nr_features);
    network.answers = host_floats((size_t)network.batch * nr_classes);
    network.device_answers = device_floats((size_t)network.batch * nr_classes);
    return network;
}

/* One request, from the images to what is said of them. */
static void answer(struct network *network)
{
    const size_t answer_bytes = (size_t)network->batch * nr_classes * sizeof(float);
    memset(network->answers, 0xff, answer_bytes); /* no numbers: what the last request left would be taken for new */
    CHECK(cudaMemcpyAsync(network->inputs, network->images, network->nr_inputs * sizeof(float), cudaMemcpyDefault));
    const float *inputs = network->inputs;
    for (const struct layer &layer : network->layers) {
        const int half = layer.size / 2;
        convolve<<<dim3(blocks_of((size_t)layer.size * layer.size), layer.nr_out, network->batch), nr_threads>>>(inputs,
                                                                                                                 layer);
        pool<<<dim3(blocks_of((size_t)half * half), layer.nr_out, network->batch), nr_threads>>>(layer);
        inputs = layer.outputs;
    }
    connect<<<dim3(nr_classes, network->batch), nr_threads>>>(inputs, network->dense, network->nr_features,
                                                              network->device_answers);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(network->answers, network->device_answers, answer_bytes, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
}

/* Of the answers' bits, after Fowler, Noll and Vo. */
static uint64_t digest_of(const struct network *network)
{
    const unsigned char *bytes = (const unsigned char *)network->answers;
    uint64_t digest = 0xcbf29ce484222325u;
    for (size_t i = 0; i < (size_t)network->batch * nr_classes * sizeof(float); i++) {
        digest = (digest ^ bytes[i]) * 0x100000001b3u;
    }
    return digest;
}

static void check_answers(const struct network *network, uint64_t digest)
{
    if (digest_of(network) != digest) {
        fprintf(stderr, "inference: a request was answered otherwise than the first one\n");
        exit(1);
    }
}

/* Requests until the stretch is over. Returns those that were answered; false in has_stretch when there was none. */
static std::vector<struct request> serve(const struct options *options, struct network *network, uint64_t digest,
                                         struct stretch *stretch, struct count *counted, bool *has_stretch)
{
    volatile unsigned long long nr_ended = 0;
    std::promise<void> end;
    std::thread counter([&] {
        const double now_s = seconds_now();
        *stretch = {now_s, now_s + options->stretch_s, 0};
        *has_stretch = !options->is_together || ask(stretch);
        if (*has_stretch) {
            *counted = count(*stretch, &nr_ended);
        }
        if (*has_stretch && options->is_together) {
            wait_for_word();
        }
        end.set_value();
    });
    std::vector<struct request> requests;
    std::mt19937 chance((std::mt19937::result_type)options->seed);
    std::exponential_distribution<double> gap;
    const std::future<void> is_over = end.get_future();
    const bool is_queue = options->rate > 0;
    const double mean_s = is_queue ? 1 / options->rate : options->pause_ms / 1e3;
    double next_s = seconds_now() + mean_s * gap(chance);
    while (is_over.wait_for(std::chrono::duration<double>(fmax(next_s - seconds_now(), 0))) !=
           std::future_status::ready) {
        const double begin_s = is_queue ? next_s : seconds_now();
        answer(network);
        const double end_s = seconds_now();
        requests.push_back({begin_s, end_s});
        nr_ended = requests.size();
        check_answers(network, digest);
        next_s = (is_queue ? next_s : end_s) + mean_s * gap(chance);
    }
    counter.join();
    return requests;
}

static bool read_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"size", required_argument, NULL, 's'},   {"channels", required_argument, NULL, 'c'},
        {"layers", required_argument, NULL, 'l'}, {"batch", required_argument, NULL, 'b'},
        {"rate", required_argument, NULL, 'a'},   {"pause-ms", required_argument, NULL, 'p'},
        {"random", required_argument, NULL, 'r'}, {"seconds", required_argument, NULL, 'w'},
        {"together", no_argument, NULL, 't'},     {}};
    bool has_rate = false, has_pause = false;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == 's') {
            options->size = atol(optarg);
        } else if (option == 'c') {
            options->channels = atol(optarg);
        } else if (option == 'l') {
            options->nr_layers = atol(optarg);
        } else if (option == 'b') {
            options->batch = atol(optarg);
        } else if (option == 'a') {
            options->rate = atof(optarg);
            has_rate = true;
        } else if (option == 'p') {
            options->pause_ms = atof(optarg);
            has_pause = true;
        } else if (option == 'r') {
            options->seed = strtoul(optarg, NULL, 10);
        } else if (option == 'w') {
            options->stretch_s = atof(optarg);
        } else if (option == 't') {
            options->is_together = true;
        } else {
            return false;
        }
    }
    if (has_rate && has_pause) {
        fprintf(stderr, "inference: requests come at a --rate or after a --pause-ms, not both\n");
    } else if ((has_rate && !(options->rate > 0)) || !(options->pause_ms >= 0) || !(options->stretch_s > 0) ||
               !isfinite(options->rate + options->pause_ms + options->stretch_s)) {
        fprintf(stderr, "inference: --rate and --seconds are above 0, --pause-ms is 0 or more\n");
    } else if (options->channels < 1 || options->batch < 1 || options->nr_layers < 1 || options->channels > 4096 ||
               options->batch > 4096 || options->size > 4096 || options->nr_layers > 12 ||
               options->size >> options->nr_layers < 1) {
        fprintf(stderr,
                "inference: --size, --channels and --batch are 1 or more, up to 4096; each of the --layers halves the "
                "size, of which 1 is to be left\n");
    } else {
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {64, 16, 3, 1, 0, 0, 10, 1, false};
    if (!read_options(argc, argv, &options)) {
        return 2;
    }
    struct network network = make_network(&options);
    answer(&network);
    const uint64_t digest = digest_of(&network);
    for (int request = 1; request < nr_first; request++) {
        answer(&network);
        check_answers(&network, digest);
    }
    struct stretch stretch;
    struct count counted;
    bool has_stretch = false;
    const std::vector<struct request> requests = serve(&options, &network, digest, &stretch, &counted, &has_stretch);
    if (!has_stretch) {
        return 2;
    }
    printf("{\"throughput\": %.9g, \"unit\": \"images/s\", \"counted_requests\": %.9g, \"seconds\": %.9g",
           counted.nr * options.batch / counted_s(stretch), counted.nr, counted_s(stretch));
    print_requests(requests, stretch);
    printf(", \"digest\": \"%016llx\", \"answers\": [", (unsigned long long)digest);
    for (int i = 0; i < nr_classes; i++) {
        printf("%s%.9g", i ? ", " : "", network.answers[i]);
    }
    printf("]}\n");
    return 0;
}
