/*
 * Kmeans, as TensorFlow's: points go to the nearest of some means, which the host moves into the middle of their points
 * before it asks again. A round is some of these steps. All numbers are whole ones, so that sums are the same in
 * whatever order they are made: those of a block in shared memory, those of all by atomic additions.
 */
#include "Kmeans.h"

#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

enum { NR_THREADS = 256, NR_STEPS = 8, BESIDE = 40 };

static size_t nr_points;
static uint8_t *coordinates, *d_coordinates;
static int32_t *loops_nearest, *fetched_nearest, *d_nearest;
static struct kmeans_means device_means, loops_means, *d_means;
static struct kmeans_sums *d_sums;

__global__ void assign(const uint8_t *coordinates, size_t nr_points, const struct kmeans_means *means, int32_t *nearest,
                       struct kmeans_sums *sums)
{
    __shared__ struct kmeans_means there;
    __shared__ unsigned of[KMEANS_MEANS][KMEANS_DIMENSIONS], nr[KMEANS_MEANS];
    const size_t point = (size_t)blockIdx.x * NR_THREADS + threadIdx.x;

    for (unsigned i = threadIdx.x; i < KMEANS_MEANS * KMEANS_DIMENSIONS; i += NR_THREADS) {
        (&there.at[0][0])[i] = (&means->at[0][0])[i];
        (&of[0][0])[i] = 0;
    }
    if (threadIdx.x < KMEANS_MEANS) {
        nr[threadIdx.x] = 0;
    }
    __syncthreads();
    if (point < nr_points) {
        int32_t mine[KMEANS_DIMENSIONS], least = INT32_MAX;
        int best = 0;
        for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
            mine[dimension] = coordinates[dimension * nr_points + point];
        }
        for (int mean = 0; mean < KMEANS_MEANS; mean++) {
            int32_t square = 0;
            for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
                int32_t apart = mine[dimension] - there.at[mean][dimension];
                square += apart * apart;
            }
            if (square < least) {
                least = square;
                best = mean;
            }
        }
        nearest[point] = best;
        atomicAdd(&nr[best], 1);
        for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
            atomicAdd(&of[best][dimension], mine[dimension]);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < KMEANS_MEANS * KMEANS_DIMENSIONS; i += NR_THREADS) {
        atomicAdd(&(&sums->of[0][0])[i], (unsigned long long)(&of[0][0])[i]);
    }
    if (threadIdx.x < KMEANS_MEANS) {
        atomicAdd(&sums->nr[threadIdx.x], (unsigned long long)nr[threadIdx.x]);
    }
}

/* The first ones are points. */
static void begin(struct kmeans_means *means)
{
    for (int mean = 0; mean < KMEANS_MEANS; mean++) {
        for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
            means->at[mean][dimension] = coordinates[dimension * nr_points + mean * nr_points / KMEANS_MEANS];
        }
    }
}

/* One without points stays where it is. */
static void follow(struct kmeans_means *means, const struct kmeans_sums *sums)
{
    for (int mean = 0; mean < KMEANS_MEANS; mean++) {
        for (int dimension = 0; sums->nr[mean] && dimension < KMEANS_DIMENSIONS; dimension++) {
            means->at[mean][dimension] = (int32_t)(sums->of[mean][dimension] / sums->nr[mean]);
        }
    }
}

static void generate(void)
{
    uint64_t random = 23;
    uint8_t middles[KMEANS_MEANS][KMEANS_DIMENSIONS];
    for (auto &middle : middles) {
        for (uint8_t &coordinate : middle) {
            coordinate = BESIDE + benchmark_random(&random) % (256 - 2 * BESIDE);
        }
    }
    for (size_t point = 0; point < nr_points; point++) {
        const uint8_t *middle = middles[benchmark_random(&random) % KMEANS_MEANS];
        for (int dimension = 0; dimension < KMEANS_DIMENSIONS; dimension++) {
            int beside = (int)(benchmark_random(&random) % (2 * BESIDE)) - BESIDE;
            coordinates[dimension * nr_points + point] = (uint8_t)(middle[dimension] + beside);
        }
    }
}

static double prepare(size_t size)
{
    if (size > (1u << 28)) {
        benchmark_fail("at most 2^28 points");
    }
    nr_points = size;
    coordinates = (uint8_t *)benchmark_allocate(size, KMEANS_DIMENSIONS);
    loops_nearest = (int32_t *)benchmark_allocate(size, sizeof(*loops_nearest));
    fetched_nearest = (int32_t *)benchmark_allocate(size, sizeof(*fetched_nearest));
    generate();
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc(&d_coordinates, size * KMEANS_DIMENSIONS));
        BENCHMARK_CUDA(cudaMalloc(&d_nearest, size * sizeof(*d_nearest)));
        BENCHMARK_CUDA(cudaMalloc(&d_means, sizeof(*d_means)));
        BENCHMARK_CUDA(cudaMalloc(&d_sums, sizeof(*d_sums)));
        BENCHMARK_CUDA(cudaMemcpy(d_coordinates, coordinates, size * KMEANS_DIMENSIONS, cudaMemcpyHostToDevice));
    }
    return 1e-6 * NR_STEPS * size;
}

static void device_round(void)
{
    struct kmeans_sums sums;
    begin(&device_means);
    for (int step = 0; step < NR_STEPS; step++) {
        BENCHMARK_CUDA(cudaMemcpy(d_means, &device_means, sizeof(device_means), cudaMemcpyHostToDevice));
        BENCHMARK_CUDA(cudaMemset(d_sums, 0, sizeof(*d_sums)));
        assign<<<(nr_points + NR_THREADS - 1) / NR_THREADS, NR_THREADS>>>(d_coordinates, nr_points, d_means, d_nearest,
                                                                          d_sums);
        BENCHMARK_CUDA(cudaGetLastError());
        BENCHMARK_CUDA(cudaMemcpy(&sums, d_sums, sizeof(sums), cudaMemcpyDeviceToHost));
        follow(&device_means, &sums);
    }
}

static void loops_round(void)
{
    struct kmeans_sums sums;
    begin(&loops_means);
    for (int step = 0; step < NR_STEPS; step++) {
        kmeans_loops(coordinates, nr_points, &loops_means, loops_nearest, &sums);
        follow(&loops_means, &sums);
    }
}

static void fetch(void)
{
    BENCHMARK_CUDA(cudaMemcpy(fetched_nearest, d_nearest, nr_points * sizeof(*d_nearest), cudaMemcpyDeviceToHost));
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("mean", &device_means.at[0][0], &loops_means.at[0][0],
                                  KMEANS_MEANS * KMEANS_DIMENSIONS, why, why_size) ||
           benchmark_compare_ints("nearest", fetched_nearest, loops_nearest, nr_points, why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(d_coordinates));
        BENCHMARK_CUDA(cudaFree(d_nearest));
        BENCHMARK_CUDA(cudaFree(d_means));
        BENCHMARK_CUDA(cudaFree(d_sums));
    }
    free(coordinates);
    free(loops_nearest);
    free(fetched_nearest);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "Kmeans",
        .summary = "points around 24 means in 16 dimensions, which the host moves between two launches",
        .unit = "Mpoints/s",
        .default_size = 1 << 16,
        .size_help = "points",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
