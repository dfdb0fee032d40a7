/*
 * streamcluster, after Rodinia: one short kernel for each candidate, between a copy of all costs to the device and one
 * of all savings back. What opening the candidate gains, and whether it opens, the host reckons before it asks for the
 * next one. Centres of a chunk are kept, with the number of their points; at the end of the stream these are clustered,
 * too.
 *
 * The search is that of O'Callaghan, Mishra, Meyerson, Guha and Motwani ("Streaming-data algorithms for high-quality
 * clustering", 2002): the price of a centre is halved, or raised by half of what is left, until their number is right.
 * Two things differ: all points of a set begin at one centre, and a price has a fixed number of candidates.
 */
#include "streamcluster.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

enum {
    NR_THREADS = 256,
    NR_CHUNKS = 2,
    NR_GROUPS = 15, /* around which points are generated */
    LEAST_CENTRES = 10,
    MOST_CENTRES = 20,
    NR_PRICES = 12, /* at most */
    NR_CANDIDATES = 32,
    MOST_OPENED = 1 + NR_PRICES * NR_CANDIDATES, /* of a chunk */
};

/* What is clustered at once: a chunk, or all that was kept. A point is a centre if it is its own. */
struct set {
    struct streamcluster_points points;
    int32_t *weights, *centres;
    int64_t *costs, *losses; /* what closing the centre that a point is would add to the costs */
    int nr_centres;
};

/* Who computes savings: the device, to which a set is brought first, or the loops. */
struct side {
    void (*bring)(const struct set *set);
    void (*save)(const struct set *set, int candidate);
    int32_t *results; /* of each point of the stream: its centre, as a point of the stream */
    int64_t *totals;  /* costs of each chunk, then of what was kept */
};

static struct {
    size_t chunk_points, most_points; /* of a set */
    float *coordinates;               /* chunk after chunk */
    float *kept_coordinates;
    int32_t *kept; /* points of the stream */
    struct set set;
    struct streamcluster_points device;
    int32_t *device_results, *loops_results;
    int64_t device_totals[NR_CHUNKS + 1], loops_totals[NR_CHUNKS + 1];
} stream;

static __global__ void compute_savings(struct streamcluster_points points, int candidate)
{
    __shared__ float there[STREAMCLUSTER_DIMENSIONS];
    int point = blockIdx.x * NR_THREADS + threadIdx.x;
    for (int dimension = threadIdx.x; dimension < STREAMCLUSTER_DIMENSIONS; dimension += NR_THREADS) {
        there[dimension] = points.coordinates[(size_t)dimension * points.nr_points + candidate];
    }
    __syncthreads();
    if (point >= points.nr_points) {
        return;
    }
    float square = 0;
    for (int dimension = 0; dimension < STREAMCLUSTER_DIMENSIONS; dimension++) {
        float apart = points.coordinates[(size_t)dimension * points.nr_points + point] - there[dimension];
        square += apart * apart;
    }
    points.savings[point] = points.costs[point] - points.weights[point] * (int64_t)square;
}

static void bring_to_device(const struct set *set)
{
    size_t nr_points = set->points.nr_points;
    stream.device.nr_points = set->points.nr_points;
    BENCHMARK_CUDA(cudaMemcpy((void *)stream.device.coordinates, set->points.coordinates,
                              nr_points * STREAMCLUSTER_DIMENSIONS * sizeof(float), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(
        cudaMemcpy((void *)stream.device.weights, set->weights, nr_points * sizeof(int32_t), cudaMemcpyHostToDevice));
}

static void save_on_device(const struct set *set, int candidate)
{
    size_t nr_bytes = set->points.nr_points * sizeof(int64_t);
    BENCHMARK_CUDA(cudaMemcpy((void *)stream.device.costs, set->costs, nr_bytes, cudaMemcpyHostToDevice));
    compute_savings<<<(set->points.nr_points + NR_THREADS - 1) / NR_THREADS, NR_THREADS>>>(stream.device, candidate);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaMemcpy(set->points.savings, stream.device.savings, nr_bytes, cudaMemcpyDeviceToHost));
}

static void bring_nowhere(const struct set *) {}

static void save_in_loops(const struct set *set, int candidate)
{
    streamcluster_loops(&set->points, candidate);
}

static int64_t total_of(const struct set *set)
{
    int64_t total = 0;
    for (int point = 0; point < set->points.nr_points; point++) {
        total += set->costs[point];
    }
    return total;
}

/* All points at the first one. */
static void open_first(struct set *set, const struct side *side)
{
    memset(set->costs, 0, set->points.nr_points * sizeof(*set->costs));
    side->save(set, 0);
    for (int point = 0; point < set->points.nr_points; point++) {
        set->centres[point] = 0;
        set->costs[point] = -set->points.savings[point];
    }
    set->nr_centres = 1;
}

/*
 * What is gained by opening the candidate: all that points save who are nearer to it, less its price; and the price of
 * each centre whose other points lose less than that when they have to follow. Leaves these losses behind.
 */
static int64_t gain_of(struct set *set, int64_t price)
{
    int64_t gain = -price;
    memset(set->losses, 0, set->points.nr_points * sizeof(*set->losses));
    for (int point = 0; point < set->points.nr_points; point++) {
        int64_t saving = set->points.savings[point];
        if (saving > 0) {
            gain += saving;
        } else {
            set->losses[set->centres[point]] -= saving;
        }
    }
    for (int point = 0; point < set->points.nr_points; point++) {
        if (set->centres[point] == point && set->losses[point] < price) {
            gain += price - set->losses[point];
        }
    }
    return gain;
}

/* A centre has no cost, so it saves nothing and moves only if it closes. */
static void open(struct set *set, int candidate, int64_t price)
{
    set->nr_centres++;
    for (int point = 0; point < set->points.nr_points; point++) {
        int64_t saving = set->points.savings[point];
        bool is_closing = set->losses[set->centres[point]] < price;
        if (saving > 0 || is_closing) {
            set->nr_centres -= set->centres[point] == point;
            set->centres[point] = candidate;
            set->costs[point] -= saving;
        }
    }
}

static void cluster(struct set *set, uint64_t *random, const struct side *side)
{
    side->bring(set);
    open_first(set, side);
    int64_t lowest = 0, highest = total_of(set);
    for (int nr_prices = 0; nr_prices < NR_PRICES; nr_prices++) {
        int64_t price = lowest + (highest - lowest) / 2;
        for (int number = 0; number < NR_CANDIDATES; number++) {
            int candidate = (int)(benchmark_random(random) % set->points.nr_points);
            if (set->centres[candidate] == candidate) {
                continue;
            }
            side->save(set, candidate);
            if (gain_of(set, price) > 0) {
                open(set, candidate, price);
            }
        }
        if (set->nr_centres > MOST_CENTRES) {
            lowest = price;
        } else if (set->nr_centres < LEAST_CENTRES) {
            highest = price;
        } else {
            return;
        }
    }
}

/* Adds the centres of a chunk, which begins at `first`, to those that are kept; returns their new number. */
static int keep(const struct set *set, size_t first, int nr_kept, int32_t *kept_weights, int32_t *results)
{
    for (int point = 0; point < set->points.nr_points; point++) {
        if (set->centres[point] == point) {
            stream.kept[nr_kept] = (int32_t)(first + point);
            kept_weights[nr_kept] = 0;
            results[first + point] = nr_kept++;
        }
    }
    for (int point = 0; point < set->points.nr_points; point++) {
        int32_t centre = results[first + set->centres[point]];
        results[first + point] = centre;
        kept_weights[centre]++;
    }
    return nr_kept;
}

static void take_chunk(struct set *set, size_t first)
{
    set->points.nr_points = (int)stream.chunk_points;
    set->points.coordinates = stream.coordinates + first * STREAMCLUSTER_DIMENSIONS;
    std::fill_n(set->weights, stream.chunk_points, 1);
}

static void take_kept(struct set *set, int nr_kept, const int32_t *kept_weights)
{
    set->points.nr_points = nr_kept;
    set->points.coordinates = stream.kept_coordinates;
    memcpy(set->weights, kept_weights, nr_kept * sizeof(*set->weights));
    for (int at = 0; at < nr_kept; at++) {
        size_t chunk = stream.kept[at] / stream.chunk_points, point = stream.kept[at] % stream.chunk_points;
        const float *coordinates = stream.coordinates + chunk * stream.chunk_points * STREAMCLUSTER_DIMENSIONS + point;
        for (int dimension = 0; dimension < STREAMCLUSTER_DIMENSIONS; dimension++) {
            stream.kept_coordinates[dimension * nr_kept + at] = coordinates[dimension * stream.chunk_points];
        }
    }
}

static void cluster_stream(const struct side *side)
{
    static int32_t kept_weights[NR_CHUNKS * MOST_OPENED];
    uint64_t random = 2;
    int nr_kept = 0;
    for (int chunk = 0; chunk < NR_CHUNKS; chunk++) {
        size_t first = chunk * stream.chunk_points;
        take_chunk(&stream.set, first);
        cluster(&stream.set, &random, side);
        side->totals[chunk] = total_of(&stream.set);
        nr_kept = keep(&stream.set, first, nr_kept, kept_weights, side->results);
    }
    take_kept(&stream.set, nr_kept, kept_weights);
    cluster(&stream.set, &random, side);
    side->totals[NR_CHUNKS] = total_of(&stream.set);
    for (size_t point = 0; point < NR_CHUNKS * stream.chunk_points; point++) {
        side->results[point] = stream.kept[stream.set.centres[side->results[point]]];
    }
}

/* Each point lies up to 63 beside the middle of its group, in each dimension. */
static void generate_points(void)
{
    uint64_t random = 1;
    static float middles[NR_GROUPS][STREAMCLUSTER_DIMENSIONS];
    for (float (&middle)[STREAMCLUSTER_DIMENSIONS] : middles) {
        for (float &coordinate : middle) {
            coordinate = 64 + benchmark_random(&random) % 128;
        }
    }
    for (int chunk = 0; chunk < NR_CHUNKS; chunk++) {
        float *coordinates = stream.coordinates + chunk * stream.chunk_points * STREAMCLUSTER_DIMENSIONS;
        for (size_t point = 0; point < stream.chunk_points; point++) {
            const float *middle = middles[benchmark_random(&random) % NR_GROUPS];
            for (int dimension = 0; dimension < STREAMCLUSTER_DIMENSIONS; dimension++) {
                float beside = (float)(benchmark_random(&random) % 127) - 63;
                coordinates[dimension * stream.chunk_points + point] = middle[dimension] + beside;
            }
        }
    }
}

static void prepare_set(struct set *set)
{
    set->points.weights = set->weights = (int32_t *)benchmark_allocate(stream.most_points, sizeof(int32_t));
    set->points.costs = set->costs = (int64_t *)benchmark_allocate(stream.most_points, sizeof(int64_t));
    set->points.savings = (int64_t *)benchmark_allocate(stream.most_points, sizeof(int64_t));
    set->losses = (int64_t *)benchmark_allocate(stream.most_points, sizeof(int64_t));
    set->centres = (int32_t *)benchmark_allocate(stream.most_points, sizeof(int32_t));
}

static void prepare_device(void)
{
    BENCHMARK_CUDA(
        cudaMalloc(&stream.device.coordinates, stream.most_points * STREAMCLUSTER_DIMENSIONS * sizeof(float)));
    BENCHMARK_CUDA(cudaMalloc(&stream.device.weights, stream.most_points * sizeof(int32_t)));
    BENCHMARK_CUDA(cudaMalloc(&stream.device.costs, stream.most_points * sizeof(int64_t)));
    BENCHMARK_CUDA(cudaMalloc(&stream.device.savings, stream.most_points * sizeof(int64_t)));
}

static double prepare(size_t size)
{
    if (size > 4000000) {
        benchmark_fail("at most 4,000,000 points of a chunk");
    }
    size_t most_kept = NR_CHUNKS * std::min(size, (size_t)MOST_OPENED), nr_points = NR_CHUNKS * size;
    stream.chunk_points = size;
    stream.most_points = std::max(size, most_kept);
    stream.coordinates = (float *)benchmark_allocate(nr_points * STREAMCLUSTER_DIMENSIONS, sizeof(float));
    stream.kept_coordinates = (float *)benchmark_allocate(most_kept * STREAMCLUSTER_DIMENSIONS, sizeof(float));
    stream.kept = (int32_t *)benchmark_allocate(most_kept, sizeof(int32_t));
    stream.device_results = (int32_t *)benchmark_allocate(nr_points, sizeof(int32_t));
    stream.loops_results = (int32_t *)benchmark_allocate(nr_points, sizeof(int32_t));
    prepare_set(&stream.set);
    generate_points();
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return nr_points * 1e-3;
}

static void device_round(void)
{
    const struct side side = {bring_to_device, save_on_device, stream.device_results, stream.device_totals};
    cluster_stream(&side);
}

static void loops_round(void)
{
    const struct side side = {bring_nowhere, save_in_loops, stream.loops_results, stream.loops_totals};
    cluster_stream(&side);
}

/* Each cost is made of savings, so a total is wrong if a saving is that moved a point. */
static int check(char *why, size_t why_size)
{
    benchmark_digest(stream.device_totals, sizeof(stream.device_totals));
    for (int set = 0; set <= NR_CHUNKS; set++) {
        long long device = stream.device_totals[set], loops = stream.loops_totals[set];
        if (device != loops) {
            snprintf(why, why_size, "set %d costs %lld on the device and %lld in the loops", set, device, loops);
            return 1;
        }
    }
    return benchmark_compare_ints("centre", stream.device_results, stream.loops_results,
                                  NR_CHUNKS * stream.chunk_points, why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)stream.device.coordinates));
        BENCHMARK_CUDA(cudaFree((void *)stream.device.weights));
        BENCHMARK_CUDA(cudaFree((void *)stream.device.costs));
        BENCHMARK_CUDA(cudaFree(stream.device.savings));
    }
    free(stream.set.weights);
    free(stream.set.costs);
    free(stream.set.points.savings);
    free(stream.set.losses);
    free(stream.set.centres);
    free(stream.coordinates);
    free(stream.kept_coordinates);
    free(stream.kept);
    free(stream.device_results);
    free(stream.loops_results);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "streamcluster",
        "online clustering of a stream of points, a launch for each centre that may open",
        "kpoints/s",
        512,
        "points of each of two chunks",
        prepare,
        device_round,
        loops_round,
        NULL,
        check,
        NULL,
        release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
