/*
 * Kernels that last a given time, launched without end: exact mixtures for the fairness benchmarks.
 *
 *   spin [--kernel-us US] [--queue N] [--sleep-us US] [--seconds S | --together]
 *
 * N launches are followed by one synchronisation (1: an interactive program), then by a sleep. Kernels that end within
 * a window of S seconds (10) are counted, by themselves, in memory that the host reads at the window's two edges.
 *
 * --together: all programs of a benchmark count in the same window, while each of them works before it and after it.
 * The program says "ready" once its kernels run, reads the window, two numbers of CLOCK_REALTIME's seconds, from its
 * standard input, and works on until that is closed. Prints one JSON object.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <thread>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "spin: %s: %s\n", #call, cudaGetErrorName(error_));                                        \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct window {
    double begin_s, end_s;
};

__global__ void spin(unsigned long long ns, volatile unsigned long long *nr_ended)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
    *nr_ended = *nr_ended + 1; /* kernels of one stream follow each other */
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_us(double us)
{
    struct timespec nap = {(time_t)(us / 1e6), (long)((long long)(us * 1e3) % 1000000000)};
    nanosleep(&nap, NULL);
}

static void sleep_until(double at_s)
{
    double left_s = at_s - seconds_now();
    if (left_s > 0)
        sleep_us(left_s * 1e6);
}

/* Where the window lies, asked from whoever started all programs. */
static struct window ask(void)
{
    struct window window;
    printf("ready\n");
    fflush(stdout);
    if (scanf("%lf %lf", &window.begin_s, &window.end_s) != 2 || window.end_s <= window.begin_s) {
        fprintf(stderr, "spin: a window is two numbers on standard input, its begin and its end in seconds\n");
        exit(2);
    }
    return window;
}

static unsigned long long count(struct window window, const volatile unsigned long long *nr_ended)
{
    sleep_until(window.begin_s);
    const unsigned long long before = *nr_ended;
    sleep_until(window.end_s);
    return *nr_ended - before;
}

static void wait_for_end_of_input(void)
{
    while (getchar() != EOF)
        ;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"kernel-us", required_argument, NULL, 'k'}, {"queue", required_argument, NULL, 'q'},
        {"sleep-us", required_argument, NULL, 's'},  {"seconds", required_argument, NULL, 'w'},
        {"together", no_argument, NULL, 't'},        {}};
    double kernel_us = 100, nap_us = 0, window_s = 10;
    long nr_queued = 1;
    bool is_together = false;
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
            window_s = atof(optarg);
            break;
        case 't':
            is_together = true;
            break;
        default:
            return 2;
        }
    }
    if (kernel_us <= 0 || nr_queued < 1 || nap_us < 0 || window_s <= 0) {
        fprintf(stderr, "spin: times are positive, --queue is 1 or more\n");
        return 2;
    }
    volatile unsigned long long *nr_ended;
    CHECK(cudaHostAlloc((void **)&nr_ended, sizeof(*nr_ended), cudaHostAllocMapped));
    *nr_ended = 0;
    const unsigned long long kernel_ns = (unsigned long long)(kernel_us * 1e3);
    spin<<<1, 1>>>(kernel_ns, (unsigned long long *)nr_ended);
    CHECK(cudaDeviceSynchronize());

    std::atomic<bool> is_over(false);
    struct window window;
    unsigned long long nr_kernels = 0;
    std::thread counter([&] {
        window = is_together ? ask() : (struct window){seconds_now(), seconds_now() + window_s};
        nr_kernels = count(window, nr_ended);
        if (is_together)
            wait_for_end_of_input();
        is_over = true;
    });
    while (!is_over) {
        for (long i = 0; i < nr_queued; i++)
            spin<<<1, 1>>>(kernel_ns, (unsigned long long *)nr_ended);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        if (nap_us > 0)
            sleep_us(nap_us);
    }
    counter.join();
    printf("{\"kernels\": %llu, \"kernel_us\": %g, \"seconds\": %g}\n", nr_kernels, kernel_us,
           window.end_s - window.begin_s);
    return 0;
}
