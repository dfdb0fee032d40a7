/*
 * FFT, after SHOC: many transforms of 512 complex numbers, a block for each of them, which holds it in shared memory;
 * then their inverses. Each of the two launches is waited for.
 *
 * The steps are those of Stockham, which leave results in order: see Cochran and others, "What is the fast Fourier
 * transform?", 1967. SHOC's take eight numbers at once, these take two.
 */
#include "FFT.h"

#include <cmath>
#include <cstdlib>
#include <cuda_runtime.h>
#include <tuple>

#include "common.h"

static const double tolerance = 1e-4;
static size_t nr_arrays;
static struct fft_number turns[FFT_HALF];
static struct fft_number *input, *loops_there, *loops_back, *fetched_there, *fetched_back; /* of the host */
static struct fft_number *d_input, *d_there, *d_back, *d_turns;

/* A block for each array, a thread for each pair of its numbers. */
__global__ void transform(struct fft_number *to, const struct fft_number *from, const struct fft_number *turns,
                          float sign)
{
    __shared__ struct fft_number rooms[2][FFT_LENGTH];
    struct fft_number *now = rooms[0], *next = rooms[1];
    const size_t first = (size_t)blockIdx.x * FFT_LENGTH;
    const unsigned i = threadIdx.x;
    const float factor = sign < 0 ? 1.0f / FFT_LENGTH : 1;

    now[i] = from[first + i];
    now[i + FFT_HALF] = from[first + i + FFT_HALF];
    for (unsigned nr_together = 1; nr_together < FFT_LENGTH; nr_together *= 2) {
        __syncthreads();
        const unsigned within = i & (nr_together - 1), before = i - within;
        const struct fft_number a = now[i], b = now[i + FFT_HALF];
        struct fft_number turn = turns[before], apart = {a.real - b.real, a.imaginary - b.imaginary};
        turn.imaginary *= sign;
        next[2 * before + within] = {a.real + b.real, a.imaginary + b.imaginary};
        next[2 * before + within + nr_together] = {apart.real * turn.real - apart.imaginary * turn.imaginary,
                                                   apart.real * turn.imaginary + apart.imaginary * turn.real};
        struct fft_number *kept = now;
        now = next;
        next = kept;
    }
    __syncthreads();
    for (unsigned at = i; at < FFT_LENGTH; at += FFT_HALF) {
        to[first + at] = {now[at].real * factor, now[at].imaginary * factor};
    }
}

static double prepare(size_t size)
{
    uint64_t seed = 17;
    size_t nr = size * FFT_LENGTH, nr_bytes = nr * sizeof(struct fft_number);
    if (size > (1u << 22)) {
        benchmark_fail("at most 2^22 transforms");
    }
    nr_arrays = size;
    for (struct fft_number **array : {&input, &loops_there, &loops_back, &fetched_there, &fetched_back}) {
        *array = (struct fft_number *)benchmark_allocate(nr, sizeof(**array));
    }
    for (size_t i = 0; i < nr; i++) {
        input[i].real = 2 * benchmark_random_float(&seed) - 1;
        input[i].imaginary = 2 * benchmark_random_float(&seed) - 1;
    }
    for (int i = 0; i < FFT_HALF; i++) {
        double angle = -2 * M_PI * i / FFT_LENGTH;
        turns[i] = {(float)cos(angle), (float)sin(angle)};
    }
    if (benchmark_uses_device()) {
        for (struct fft_number **array : {&d_input, &d_there, &d_back}) {
            BENCHMARK_CUDA(cudaMalloc(array, nr_bytes));
        }
        BENCHMARK_CUDA(cudaMalloc(&d_turns, sizeof(turns)));
        BENCHMARK_CUDA(cudaMemcpy(d_turns, turns, sizeof(turns), cudaMemcpyHostToDevice));
        BENCHMARK_CUDA(cudaMemcpy(d_input, input, nr_bytes, cudaMemcpyHostToDevice));
    }
    return 2e-6 * nr;
}

static void device_round(void)
{
    for (auto [to, from, sign] : {std::tuple{d_there, d_input, 1.0f}, std::tuple{d_back, d_there, -1.0f}}) {
        transform<<<nr_arrays, FFT_HALF>>>(to, from, d_turns, sign);
        BENCHMARK_CUDA(cudaGetLastError());
        BENCHMARK_CUDA(cudaDeviceSynchronize());
    }
}

static void loops_round(void)
{
    fft_loops(loops_there, input, nr_arrays, turns, 1);
    fft_loops(loops_back, loops_there, nr_arrays, turns, -1);
}

static void fetch(void)
{
    size_t nr_bytes = nr_arrays * FFT_LENGTH * sizeof(struct fft_number);
    BENCHMARK_CUDA(cudaMemcpy(fetched_there, d_there, nr_bytes, cudaMemcpyDeviceToHost));
    BENCHMARK_CUDA(cudaMemcpy(fetched_back, d_back, nr_bytes, cudaMemcpyDeviceToHost));
}

/* Also with what both began with: an error that is in both sides shows there. */
static int check(char *why, size_t why_size)
{
    size_t nr = 2 * nr_arrays * FFT_LENGTH;
    return benchmark_compare_floats("there", &fetched_there->real, &loops_there->real, nr, tolerance, why, why_size) ||
           benchmark_compare_floats("back", &fetched_back->real, &loops_back->real, nr, tolerance, why, why_size) ||
           benchmark_compare_floats("input", &fetched_back->real, &input->real, nr, tolerance, why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        for (struct fft_number *array : {d_input, d_there, d_back, d_turns}) {
            BENCHMARK_CUDA(cudaFree(array));
        }
    }
    for (struct fft_number *array : {input, loops_there, loops_back, fetched_there, fetched_back}) {
        free(array);
    }
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "FFT",
        .summary = "Fourier transforms of 512 complex numbers each, and their inverses",
        .unit = "Mnumbers/s",
        .default_size = 256,
        .size_help = "transforms",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
