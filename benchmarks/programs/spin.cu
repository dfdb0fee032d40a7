/*
 * Kernels that last a given time, launched without end: exact mixtures for the fairness benchmarks.
 *
 *   spin [--kernel-us US] [--work] [--queue N] [--sleep-us US] [--random SEED]
 *        [--seconds S | --together] [--log FILE] [--look-ms MS]
 *
 * --random: pauses are exponentially distributed, with the sleep as their mean: requests that arrive by chance. The
 * same seed gives the same pauses.
 *
 * N launches are followed by one synchronisation (1: an interactive program), then by a sleep. Kernels that end within
 * a stretch of S seconds (10) are counted, by themselves, in memory that the host reads at the stretch's two edges.
 * Where there are sleeps a row of launches is a request, and those that end within the stretch are counted and timed.
 *
 * --together: all programs of a benchmark count in the same stretch, told on standard input as to the other programs,
 * see common.h. Prints one JSON object.
 *
 * --work: a kernel does as much as the device does in that time, measured at the start. So it does nothing while it is
 * off the device, or shares it, where one that watches a clock would come to its end.
 *
 * --log: when each kernel of the stretch began and ended, by the device's %globaltimer: two 64-bit numbers of ns each,
 * as this machine has them in memory.
 *
 * --look-ms: how many kernels had ended each so many ms, from the beginning of the stretch until the last word from
 * standard input, as "looks" of the object: pairs of seconds since then and a number.
 */
#include <atomic>
#include <getopt.h>
#include <math.h>
#include <random>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <vector>

#include "check.h"
#include "looks.h"
#include "requests.h"
#include "stretch.h"

struct span {
    unsigned long long begin_ns, end_ns;
};

/* In memory of the host that the device writes to. */
struct record {
    unsigned long long nr_ended;
    struct span spans[]; /* the newest of them */
};

static const unsigned long long nr_spans = 1 << 19;

/* Of the launches that tell how much is done in a us: short, so that most of them are undisturbed by others' turns. */
static const float trial_ms = 2;
static const int nr_trials = 20;

__global__ void spin(unsigned long long ns, volatile struct record *record, bool is_logged)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ns);
    const unsigned long long nr_ended = record->nr_ended; /* kernels of one stream follow each other */
    if (is_logged) {
        volatile struct span *mine = &record->spans[nr_ended % nr_spans];
        mine->begin_ns = start;
        mine->end_ns = now;
    }
    record->nr_ended = nr_ended + 1;
}

__global__ void work(unsigned long long nr_rounds, volatile struct record *record)
{
    unsigned value = (unsigned)nr_rounds | 1;
    for (unsigned long long round = 0; round < nr_rounds; round++) {
        value ^= value << 13; /* after Marsaglia: what is not 0 never becomes 0 */
        value ^= value >> 17;
        value ^= value << 5;
    }
    record->nr_ended = value == 0 ? 0 : record->nr_ended + 1;
}

static float timed_work(unsigned long long nr_rounds, struct record *record)
{
    float ms;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin));
    work<<<1, 1>>>(nr_rounds, record);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return ms;
}

/* How many rounds take so long: by the fastest of several launches, because others may have the device in between. */
static unsigned long long rounds_of(double kernel_us, struct record *record)
{
    unsigned long long nr_rounds = 1000;
    timed_work(nr_rounds, record); /* loads the kernel */
    while (timed_work(nr_rounds, record) < trial_ms) {
        nr_rounds *= 2;
    }
    float least_ms = timed_work(nr_rounds, record);
    for (int trial = 1; trial < nr_trials; trial++) {
        least_ms = fminf(least_ms, timed_work(nr_rounds, record));
    }
    return (unsigned long long)(nr_rounds * (kernel_us / 1e3 / least_ms)) + 1;
}

static void write_log(const char *path, const struct record *record, struct count counted)
{
    if (record->nr_ended - counted.first > nr_spans) {
        fprintf(stderr, "spin: more kernels than the log holds, %llu\n", nr_spans);
        exit(2);
    }
    FILE *file = fopen(path, "wb");
    for (unsigned long long i = counted.first; file && i < counted.last; i++) {
        fwrite(&record->spans[i % nr_spans], sizeof(struct span), 1, file);
    }
    if (!file || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
}

/* All looks from begin_s on, on seconds_now()'s clock, until the program is over, and one more then. */
static std::vector<struct look> look_each(double period_s, double begin_s, const volatile unsigned long long *nr_ended,
                                          const std::atomic<bool> &is_over)
{
    std::vector<struct look> looks;
    sleep_until(begin_s);
    for (bool is_last = false; !is_last;) {
        is_last = is_over;
        const double now_s = seconds_now();
        looks.push_back({now_s - begin_s, *nr_ended});
        if (!is_last) {
            sleep_until(now_s + period_s);
        }
    }
    return looks;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"kernel-us", required_argument, NULL, 'k'}, {"queue", required_argument, NULL, 'q'},
        {"sleep-us", required_argument, NULL, 's'},  {"seconds", required_argument, NULL, 'w'},
        {"together", no_argument, NULL, 't'},        {"log", required_argument, NULL, 'l'},
        {"look-ms", required_argument, NULL, 'm'},   {"work", no_argument, NULL, 'd'},
        {"random", required_argument, NULL, 'r'},    {}};
    double kernel_us = 100, nap_us = 0, stretch_s = 10, look_ms = 0;
    long nr_queued = 1;
    bool is_together = false, is_work = false, is_random = false;
    std::mt19937 chance;
    std::exponential_distribution<double> pause;
    const char *log = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'k':
            kernel_us = atof(optarg);
            break;
        case 'q':
            nr_queued = atol(optarg);
            break;
        case 's':
            nap_us = atof(optarg);
            break;
        case 'w':
            stretch_s = atof(optarg);
            break;
        case 't':
            is_together = true;
            break;
        case 'd':
            is_work = true;
            break;
        case 'r':
            chance.seed(strtoul(optarg, NULL, 10));
            is_random = true;
            break;
        case 'l':
            log = optarg;
            break;
        case 'm':
            look_ms = atof(optarg);
            if (look_ms <= 0) {
                fprintf(stderr, "spin: --look-ms is a time above 0\n");
                return 2;
            }
            break;
        default:
            return 2;
        }
    }
    if (is_work && log) {
        fprintf(stderr, "spin: --log needs kernels that watch the clock; leave out --work\n");
        return 2;
    }
    if (kernel_us <= 0 || nr_queued < 1 || nap_us < 0 || stretch_s <= 0) {
        fprintf(stderr, "spin: times are positive, --queue is 1 or more\n");
        return 2;
    }
    struct record *record;
    CHECK(cudaHostAlloc((void **)&record, sizeof(*record) + (log ? nr_spans * sizeof(struct span) : 0),
                        cudaHostAllocMapped));
    record->nr_ended = 0;
    const unsigned long long kernel_ns = (unsigned long long)(kernel_us * 1e3);
    spin<<<1, 1>>>(kernel_ns, record, log != NULL);
    CHECK(cudaDeviceSynchronize());
    const unsigned long long nr_rounds = is_work ? rounds_of(kernel_us, record) : 0;

    std::atomic<bool> is_over(false);
    struct stretch stretch = {seconds_now(), seconds_now() + stretch_s, 0};
    bool has_stretch = true;
    struct count counted;
    std::vector<struct look> looks;
    std::thread looker;
    std::thread counter([&] {
        has_stretch = !is_together || ask(&stretch);
        if (has_stretch) {
            if (look_ms > 0) {
                looker =
                    std::thread([&] { looks = look_each(look_ms / 1e3, stretch.begin_s, &record->nr_ended, is_over); });
            }
            counted = count(stretch, &record->nr_ended);
        }
        if (is_together && has_stretch) {
            wait_for_word();
        }
        is_over = true;
    });
    std::vector<struct request> requests;
    while (!is_over) {
        const double begin_s = seconds_now();
        for (long i = 0; i < nr_queued; i++) {
            if (is_work) {
                work<<<1, 1>>>(nr_rounds, record);
            } else {
                spin<<<1, 1>>>(kernel_ns, record, log != NULL);
            }
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        if (nap_us > 0) {
            requests.push_back({begin_s, seconds_now()});
            sleep_us(is_random ? nap_us * pause(chance) : nap_us);
        }
    }
    counter.join();
    if (looker.joinable()) {
        looker.join();
    }
    if (!has_stretch) {
        return 2;
    }
    if (log) {
        write_log(log, record, counted);
    }
    printf("{\"kernels\": %.9g, \"kernel_us\": %g, \"seconds\": %.9g", counted.nr, kernel_us, counted_s(stretch));
    if (nap_us > 0) {
        print_requests(requests, stretch);
    }
    if (look_ms > 0) {
        print_looks(looks);
    }
    printf("}\n");
    return 0;
}
