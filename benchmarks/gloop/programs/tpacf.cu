/*
 * TPACF of Parboil on GLoop: few long blocks that keep what they have counted in shared memory. Plain each block makes
 * its histogram in one go; split a launch is for one tile of points against all others; by gloop a scheduling point
 * follows each pair of tiles, and shared memory is kept over it.
 */
#include "tpacf.cuh"

#include <cmath>

#include "port.cuh"

enum { MOST_RANDOM_SETS = 131, POINTS_PER_SET = 62 };

static struct {
    struct tpacf_sky loops, device;
    std::vector<uint32_t> found;
} sky;

static int nr_histograms(void)
{
    return 2 * sky.loops.nr_random_sets + 1;
}

static size_t nr_points(void)
{
    return (size_t)(sky.loops.nr_random_sets + 1) * sky.loops.nr_points;
}

static void generate_points(struct tpacf_point *points)
{
    uint64_t random = 1;
    for (size_t at = 0; at < nr_points(); at++) {
        float height = 2 * benchmark_random_float(&random) - 1;
        float turn = 6.2831853f * benchmark_random_float(&random), radius = std::sqrt(1 - height * height);
        points[at] = {radius * std::cos(turn), radius * std::sin(turn), height};
    }
}

/* From 0 degrees to 180, by equal steps. The first one is above all products, whatever their rounding. */
static void generate_bounds(float *bounds)
{
    for (int bin = 0; bin < TPACF_BINS; bin++) {
        bounds[bin] = (float)std::cos(3.14159265 * bin / TPACF_BINS);
    }
    bounds[0] = 2;
}

static double prepare(size_t size)
{
    if (size > 1 << 20) {
        benchmark_fail("at most %d points of a set", 1 << 20);
    }
    sky.loops.nr_points = (int)((size + TPACF_THREADS - 1) / TPACF_THREADS * TPACF_THREADS);
    sky.loops.nr_random_sets = std::max(1, std::min<int>(MOST_RANDOM_SETS, (int)size / POINTS_PER_SET));
    struct tpacf_point *points = (struct tpacf_point *)benchmark_allocate(nr_points(), sizeof(*points));
    float *bounds = (float *)benchmark_allocate(TPACF_BINS, sizeof(*bounds));
    generate_points(points);
    generate_bounds(bounds);
    sky.loops.points = points;
    sky.loops.bounds = bounds;
    sky.loops.histograms = (uint32_t *)benchmark_allocate((size_t)nr_histograms() * TPACF_BINS, sizeof(uint32_t));
    sky.found.resize((size_t)nr_histograms() * TPACF_BINS);
    sky.device = sky.loops;
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc((void **)&sky.device.points, nr_points() * sizeof(*points)));
        BENCHMARK_CUDA(cudaMalloc((void **)&sky.device.bounds, TPACF_BINS * sizeof(*bounds)));
        BENCHMARK_CUDA(cudaMalloc(&sky.device.histograms, sky.found.size() * sizeof(uint32_t)));
    }
    double nr = sky.loops.nr_points, sets = sky.loops.nr_random_sets;
    return 1e-6 * nr * (nr * sets + (nr - 1) / 2 * (sets + 1));
}

static void begin_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy((void *)sky.device.points, sky.loops.points, nr_points() * sizeof(*sky.loops.points),
                              cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)sky.device.bounds, sky.loops.bounds, TPACF_BINS * sizeof(*sky.loops.bounds),
                              cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemset(sky.device.histograms, 0, sky.found.size() * sizeof(uint32_t)));
}

static void end_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(sky.found.data(), sky.device.histograms, sky.found.size() * sizeof(uint32_t),
                              cudaMemcpyDeviceToHost));
}

static void launch(int first_tile, int end_tile)
{
    tpacf_plain<<<nr_histograms(), TPACF_THREADS, sizeof(struct tpacf_shared)>>>(sky.device, first_tile, end_tile);
}

static void plain_round(void)
{
    begin_round();
    port_time([] { launch(0, sky.device.nr_points / TPACF_THREADS); });
    end_round();
}

static void split_round(void)
{
    begin_round();
    port_time([] {
        for (int tile = 0; tile < sky.device.nr_points / TPACF_THREADS; tile++) {
            launch(tile, tile + 1);
        }
    });
    end_round();
}

static void launch_on_gloop(void)
{
    struct tpacf_sky device = sky.device;
    port_host().launchWithSharedMemory(nr_histograms(), TPACF_THREADS, sizeof(struct tpacf_shared),
                                       [=] __device__(gloop::DeviceLoop<> *loop) { tpacf_begin_on(loop, device); });
}

static void gloop_round(void)
{
    begin_round();
    port_time(launch_on_gloop);
    end_round();
}

static void loops_round(void)
{
    tpacf_loops(&sky.loops);
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("bin", (const int32_t *)sky.found.data(), (const int32_t *)sky.loops.histograms,
                                  sky.found.size(), why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)sky.device.points));
        BENCHMARK_CUDA(cudaFree((void *)sky.device.bounds));
        BENCHMARK_CUDA(cudaFree(sky.device.histograms));
    }
    free((void *)sky.loops.points);
    free((void *)sky.loops.bounds);
    free(sky.loops.histograms);
}

int main(int argc, char **argv)
{
    struct port port = {{"tpacf", "angles between points of a sphere, in histograms", "Mpairs/s", 0,
                         "points of a set, a multiple of 256", prepare, NULL, loops_round, NULL, check, NULL, release},
                        512,
                        8192,
                        {plain_round, split_round, gloop_round}};
    return port_main(&port, argc, argv);
}
