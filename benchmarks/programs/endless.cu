/*
 * Long kernels, one after the other without end: for benchmarks/experiments/shares.py.
 *
 *   endless [--kernel-seconds S] [--rounds N] [--seconds S | --together | --launches N]
 *
 * A kernel is S seconds (10) of work for the device at hand, measured at the start, in many short blocks, whose threads
 * do N rounds (1000) of integer arithmetic each. So a kernel that is off the device does nothing meanwhile, as it would
 * if it watched a clock.
 *
 * Each block adds one to a counter in the device's memory when it is done. Some thousand times in each kernel a block
 * tells the host how many there were, in memory of the host that the device writes to, and looks whether it is over: a
 * way to the host and back for every block would take longer than the blocks do, and a copy has to wait for what the
 * program launched before.
 * What ends within a stretch of S seconds (10) is counted. Then the blocks that are left do nothing; they are counted,
 * too, so that the program knows at its end that none was lost, or ran twice.
 *
 * --together: all programs of a benchmark count in the same stretch, see common.h and stretch.h.
 *
 * --launches: so many kernels, to their ends, and no stretch.
 *
 * Prints one JSON object. Wrong by a fraction of what a kernel tells the host in between: blocks that tell it at the
 * same moment may do so in either order.
 */
#include <atomic>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <thread>

#include "check.h"
#include "stretch.h"

struct options {
    double kernel_s, stretch_s;
    long nr_rounds;
    long nr_launches; /* 0: without end */
    bool is_together;
};

/* In the device's memory. */
struct progress {
    unsigned long long nr_ended, nr_skipped;
    unsigned is_stopped;
};

/* In memory of the host that the device reads and writes. */
struct record {
    unsigned long long nr_ended;
    unsigned is_stopped;
};

struct tenant {
    const struct options *options;
    struct progress *progress;
    volatile struct record *record;
    unsigned nr_blocks; /* of a kernel */
    unsigned long long nr_launched;
};

static const unsigned nr_threads = 256;
static const unsigned nr_reports = 1 << 14; /* of a kernel */
static const unsigned no_reports = UINT_MAX;
/* Of the launches that tell how long a block takes. */
static const unsigned first_waves = 4;
static const float trial_ms = 20;
static const int nr_trials = 5;
/* What is made of a kernel for launches in parts is there by then; until it is, a launch goes whole. */
static const double making_s = 2;

__device__ static void report(bool is_skipped, unsigned blocks_per_report, struct progress *progress,
                              volatile struct record *record)
{
    if (is_skipped) {
        atomicAdd(&progress->nr_skipped, 1);
        return;
    }
    const unsigned long long nr_ended = atomicAdd(&progress->nr_ended, 1) + 1;
    if (nr_ended % blocks_per_report == 0) {
        record->nr_ended = nr_ended;
        if (record->is_stopped) {
            atomicExch(&progress->is_stopped, 1);
        }
    }
}

__global__ void work(unsigned nr_rounds, unsigned blocks_per_report, struct progress *progress,
                     volatile struct record *record)
{
    __shared__ bool is_skipped;
    if (threadIdx.x == 0) {
        is_skipped = *(volatile unsigned *)&progress->is_stopped;
    }
    __syncthreads();
    unsigned value = (blockIdx.x * blockDim.x + threadIdx.x) | 1;
    if (!is_skipped) {
        for (unsigned round = 0; round < nr_rounds; round++) {
            value ^= value << 13; /* after Marsaglia: what is not 0 never becomes 0 */
            value ^= value >> 17;
            value ^= value << 5;
        }
    }
    if (value == 0) {
        record->nr_ended = 0; /* nothing but a reason to compute it */
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        report(is_skipped, blocks_per_report, progress, record);
    }
}

static void launch(struct tenant *tenant, unsigned nr_blocks, unsigned blocks_per_report)
{
    work<<<nr_blocks, nr_threads>>>((unsigned)tenant->options->nr_rounds, blocks_per_report, tenant->progress,
                                    (struct record *)tenant->record);
    CHECK(cudaGetLastError());
    tenant->nr_launched += nr_blocks;
}

static float timed_launch(struct tenant *tenant, unsigned nr_blocks, cudaEvent_t begin, cudaEvent_t end)
{
    float ms;
    CHECK(cudaEventRecord(begin));
    launch(tenant, nr_blocks, no_reports);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms;
}

/* By the fastest of several launches, because others may have the device in between; by then it runs at full speed. */
static double blocks_per_second(struct tenant *tenant)
{
    cudaEvent_t begin, end;
    int nr_multiprocessors, nr_resident;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaDeviceGetAttribute(&nr_multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_resident, work, nr_threads, 0));
    unsigned nr_blocks = first_waves * nr_multiprocessors * nr_resident;
    timed_launch(tenant, nr_blocks, begin, end); /* loads the kernel */
    while (timed_launch(tenant, nr_blocks, begin, end) < trial_ms) {
        nr_blocks *= 2;
    }
    float least_ms = timed_launch(tenant, nr_blocks, begin, end);
    for (int trial = 1; trial < nr_trials; trial++) {
        least_ms = fminf(least_ms, timed_launch(tenant, nr_blocks, begin, end));
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return nr_blocks / (least_ms / 1e3);
}

static unsigned blocks_of_a_kernel(struct tenant *tenant)
{
    const double nr_blocks = blocks_per_second(tenant) * tenant->options->kernel_s;
    if (!(nr_blocks >= 1 && nr_blocks <= INT_MAX)) {
        fprintf(stderr, "endless: a kernel of %g s would have %.3g blocks\n", tenant->options->kernel_s, nr_blocks);
        exit(2);
    }
    return (unsigned)nr_blocks;
}

/* A kernel whose blocks do nothing goes first, so that the others go as large ones do. */
static void announce(struct tenant *tenant)
{
    const unsigned is_stopped = 1;
    CHECK(cudaMemcpy(&tenant->progress->is_stopped, &is_stopped, sizeof(is_stopped), cudaMemcpyDefault));
    launch(tenant, tenant->nr_blocks, no_reports);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemset(&tenant->progress->is_stopped, 0, sizeof(is_stopped)));
    sleep_us(making_s * 1e6);
}

/* Kernels until the stretch is over; false when there was none. The stretch begins when the first is on its way. */
static bool run_stretch(struct tenant *tenant, struct stretch *stretch, struct count *counted)
{
    const struct options *options = tenant->options;
    struct progress before;
    CHECK(cudaMemcpy(&before, tenant->progress, sizeof(before), cudaMemcpyDefault));
    std::atomic<bool> is_over(false);
    bool has_stretch = true;
    std::thread counter([&] {
        while (tenant->record->nr_ended <= before.nr_ended) {
            sleep_us(step_s * 1e6);
        }
        *stretch = {seconds_now(), seconds_now() + options->stretch_s, 0};
        has_stretch = !options->is_together || ask(stretch);
        if (has_stretch) {
            *counted = count(*stretch, &tenant->record->nr_ended);
        }
        if (options->is_together && has_stretch) {
            wait_for_word();
        }
        is_over = true;
        tenant->record->is_stopped = 1;
    });
    while (!is_over) {
        launch(tenant, tenant->nr_blocks, tenant->nr_blocks / nr_reports + 1);
        CHECK(cudaDeviceSynchronize());
    }
    counter.join();
    return has_stretch;
}

/* What became of all blocks, as members of a JSON object. Ends the program when that is not what was launched. */
static void print_blocks(const struct tenant *tenant)
{
    struct progress progress;
    CHECK(cudaMemcpy(&progress, tenant->progress, sizeof(progress), cudaMemcpyDefault));
    if (progress.nr_ended + progress.nr_skipped != tenant->nr_launched) {
        fprintf(stderr, "endless: of %llu blocks %llu were done and %llu left out\n", tenant->nr_launched,
                progress.nr_ended, progress.nr_skipped);
        exit(2);
    }
    printf("\"kernel_blocks\": %u, \"launched\": %llu, \"done\": %llu", tenant->nr_blocks, tenant->nr_launched,
           progress.nr_ended);
}

static bool read_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"kernel-seconds", required_argument, NULL, 'k'}, {"rounds", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 'w'},        {"together", no_argument, NULL, 't'},
        {"launches", required_argument, NULL, 'n'},       {}};
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == 'k') {
            options->kernel_s = atof(optarg);
        } else if (option == 'r') {
            options->nr_rounds = atol(optarg);
        } else if (option == 'w') {
            options->stretch_s = atof(optarg);
        } else if (option == 't') {
            options->is_together = true;
        } else if (option == 'n') {
            options->nr_launches = atol(optarg);
        } else {
            return false;
        }
    }
    if (options->kernel_s > 0 && options->nr_rounds > 0 && options->nr_rounds <= INT_MAX && options->stretch_s > 0 &&
        options->nr_launches >= 0) {
        return true;
    }
    fprintf(stderr, "endless: times and numbers are positive\n");
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {10, 10, 1000, 0, false};
    if (!read_options(argc, argv, &options)) {
        return 2;
    }
    struct tenant tenant = {&options};
    CHECK(cudaMalloc((void **)&tenant.progress, sizeof(*tenant.progress)));
    CHECK(cudaMemset(tenant.progress, 0, sizeof(*tenant.progress)));
    CHECK(cudaHostAlloc((void **)&tenant.record, sizeof(*tenant.record), cudaHostAllocMapped));
    tenant.record->nr_ended = 0;
    tenant.record->is_stopped = 0;
    tenant.nr_blocks = blocks_of_a_kernel(&tenant);
    if (options.nr_launches > 0) {
        for (long i = 0; i < options.nr_launches; i++) {
            launch(&tenant, tenant.nr_blocks, tenant.nr_blocks / nr_reports + 1);
        }
        CHECK(cudaDeviceSynchronize());
        printf("{");
        print_blocks(&tenant);
        printf("}\n");
        return 0;
    }
    announce(&tenant);
    struct stretch stretch;
    struct count counted;
    if (!run_stretch(&tenant, &stretch, &counted)) {
        return 2;
    }
    printf("{\"throughput\": %.9g, \"unit\": \"blocks/s\", ", counted.nr / counted_s(stretch));
    print_blocks(&tenant);
    printf("}\n");
    return 0;
}
