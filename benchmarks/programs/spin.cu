/*
 * Kernels that last a given time, launched without end: exact mixtures for the fairness benchmarks.
 *
 *   spin [--kernel-us US] [--queue N] [--sleep-us US] [--begin S] [--end S]
 *
 * N launches are followed by one synchronisation (1: an interactive program), then by a sleep. Kernels that ended
 * between
 * --begin and --end (seconds of CLOCK_REALTIME; from the start on for 10 s without) are counted: all programs of a
 * benchmark count in the same window, while each of them works before it and after it. Prints one JSON object.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "spin: %s: %s\n", #call, cudaGetErrorName(error_));                                        \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const double margin_s = 1.0; /* goes on for so long after the window, so that the others are not alone in it */

__global__ void spin(unsigned long long ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
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

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"kernel-us", required_argument, NULL, 'k'}, {"queue", required_argument, NULL, 'q'},
        {"sleep-us", required_argument, NULL, 's'},  {"begin", required_argument, NULL, 'b'},
        {"end", required_argument, NULL, 'e'},       {}};
    double kernel_us = 100, nap_us = 0, begin_s = seconds_now(), end_s = begin_s + 10;
    long nr_queued = 1, nr_kernels = 0;
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
        case 'b':
            begin_s = atof(optarg);
            break;
        case 'e':
            end_s = atof(optarg);
            break;
        default:
            return 2;
        }
    }
    if (kernel_us <= 0 || nr_queued < 1 || nap_us < 0 || end_s <= begin_s) {
        fprintf(stderr, "spin: times are positive, --queue is 1 or more, --end is after --begin\n");
        return 2;
    }
    for (double now_s = seconds_now(); now_s < end_s + margin_s;) {
        for (long i = 0; i < nr_queued; i++)
            spin<<<1, 1>>>((unsigned long long)(kernel_us * 1e3));
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        double ended_s = seconds_now();
        /* of a queue that ends astride an edge of the window, the part that lies inside */
        double inside_s = (ended_s < end_s ? ended_s : end_s) - (now_s > begin_s ? now_s : begin_s);
        if (inside_s > 0)
            nr_kernels += (long)((double)nr_queued * inside_s / (ended_s - now_s) + 0.5);
        if (nap_us > 0)
            sleep_us(nap_us);
        now_s = seconds_now();
    }
    printf("{\"kernels\": %ld, \"kernel_us\": %g, \"seconds\": %g}\n", nr_kernels, kernel_us, end_s - begin_s);
    return 0;
}
