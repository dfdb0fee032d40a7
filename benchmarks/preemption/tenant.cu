/*
 * A tenant with one long kernel that can tell whether it was disturbed, and that holds itself back: see __main__.py.
 *
 * Reads one command a line from standard input, prints one JSON object for each:
 *
 *   start SECONDS     the kernel, of about that length
 *   progress          how far it has come
 *   timeslice [US]    that the driver gives it, or shall give it
 *   preempt NR        so often off the device, 1 ms between
 *   hold, release     off the device until it is released
 *   alternate NR US   so often held for that time and released for it
 *   finish            waits for the kernel; a digest of what it computed
 *
 * Standard input's end lets the kernel go on, if it is held, and ends the program.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "channels.h"
#include "controls.h"
#include "rounds.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "tenant: %s: %s\n", #call, cudaGetErrorName(error_));                                      \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const unsigned threads = 256, tell_every = 4096;
static const uint32_t preempt_limit_us = 500000;

__global__ void work(uint32_t *states, unsigned long long nr_rounds, volatile unsigned long long *progress)
{
    __shared__ uint32_t shared[threads];
    const unsigned self = blockIdx.x * threads + threadIdx.x;
    uint32_t state = self;
    for (unsigned long long round = 0; round < nr_rounds; round++) {
        state = play_round(state, shared);
        if (self == 0 && round % tell_every == 0) {
            *progress = round;
        }
    }
    states[self] = state;
}

static struct {
    uint32_t *states;
    unsigned long long *progress; /* in the host's memory */
    unsigned nr_blocks;
    double rounds_per_s;
    bool is_held;
} tenant;

static double now_s(void)
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void sleep_us(unsigned us)
{
    const timespec sleep = {us / 1000000, (us % 1000000) * 1000l};
    nanosleep(&sleep, NULL);
}

static void launch(double rounds)
{
    *(volatile unsigned long long *)tenant.progress = 0;
    work<<<tenant.nr_blocks, threads>>>(tenant.states, (unsigned long long)rounds, tenant.progress);
    CHECK(cudaGetLastError());
}

static void prepare(void)
{
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    tenant.nr_blocks = 2 * device.multiProcessorCount;
    CHECK(cudaMalloc(&tenant.states, tenant.nr_blocks * threads * sizeof(uint32_t)));
    CHECK(cudaHostAlloc(&tenant.progress, sizeof(*tenant.progress), cudaHostAllocMapped));
    const double rounds = 20000;
    launch(rounds);
    CHECK(cudaDeviceSynchronize());
    const double begin_s = now_s();
    launch(rounds);
    CHECK(cudaDeviceSynchronize());
    tenant.rounds_per_s = rounds / (now_s() - begin_s);
}

static uint64_t digest(void)
{
    uint64_t hash = 14695981039346656037ull;
    const size_t bytes = tenant.nr_blocks * threads * sizeof(uint32_t);
    unsigned char *states = (unsigned char *)malloc(bytes);
    CHECK(cudaMemcpy(states, tenant.states, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ states[i]) * 1099511628211ull;
    }
    free(states);
    return hash;
}

static bool print_answer(fgv_channels_answer answer, bool is_first)
{
    printf("%s{\"errno\": %d, \"status\": %u, \"us\": %.1f}", is_first ? "" : ", ", answer.error, answer.status,
           answer.us);
    return fgv_channels_did(&answer);
}

static fgv_channels_answer hold(bool is_held)
{
    const fgv_channels_answer answer = fgv_channels_hold(is_held);
    if (fgv_channels_did(&answer)) {
        tenant.is_held = is_held;
    }
    return answer;
}

/* All of it ends at the first answer that is not as wished. */
static void preempt(int nr)
{
    printf("{\"answers\": [");
    for (int i = 0; i < nr && print_answer(controls_preempt(preempt_limit_us), i == 0); i++) {
        sleep_us(1000);
    }
    printf("]}\n");
}

static void alternate(int nr, unsigned us)
{
    printf("{\"answers\": [");
    for (int i = 0; i < nr; i++) {
        if (!print_answer(hold(true), i == 0)) {
            break;
        }
        sleep_us(us);
        if (!print_answer(hold(false), false)) {
            break;
        }
        sleep_us(us);
    }
    printf("]}\n");
}

static void timeslice(const char *us)
{
    uint64_t found = 0;
    const fgv_channels_answer answer =
        *us ? controls_set_timeslice(strtoull(us, NULL, 10)) : controls_timeslice(&found);
    printf("{\"answers\": [");
    print_answer(answer, true);
    printf("], \"timeslice_us\": %llu}\n", (unsigned long long)found);
}

static void hold_or_release(bool is_held)
{
    printf("{\"answers\": [");
    print_answer(hold(is_held), true);
    printf("]}\n");
}

static void finish(double begin_s)
{
    CHECK(cudaDeviceSynchronize());
    printf("{\"seconds\": %.4f, \"digest\": \"%016llx\"}\n", now_s() - begin_s, (unsigned long long)digest());
}

int main(void)
{
    char line[128], word[32], rest[64];
    double begin_s = 0;
    prepare();
    const fgv_channels_found found = fgv_channels_find();
    printf("{\"groups\": %u, \"computing\": %u, \"channels\": %u}\n", found.nr_groups, found.nr_computing,
           found.nr_channels);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        rest[0] = 0;
        if (sscanf(line, "%31s %63[^\n]", word, rest) < 1) {
            continue;
        }
        if (strcmp(word, "start") == 0) {
            begin_s = now_s();
            launch(tenant.rounds_per_s * strtod(rest, NULL));
            printf("{}\n");
        } else if (strcmp(word, "progress") == 0) {
            printf("{\"rounds\": %llu}\n", *(volatile unsigned long long *)tenant.progress);
        } else if (strcmp(word, "timeslice") == 0) {
            timeslice(rest);
        } else if (strcmp(word, "preempt") == 0) {
            preempt(atoi(rest));
        } else if (strcmp(word, "hold") == 0 || strcmp(word, "release") == 0) {
            hold_or_release(word[0] == 'h');
        } else if (strcmp(word, "alternate") == 0) {
            int nr = 0;
            unsigned us = 0;
            sscanf(rest, "%d %u", &nr, &us);
            alternate(nr, us);
        } else if (strcmp(word, "finish") == 0) {
            finish(begin_s);
        } else {
            fprintf(stderr, "tenant: unknown command '%s'\n", word);
            return 2;
        }
        fflush(stdout);
    }
    if (tenant.is_held) {
        fgv_channels_hold(false);
    }
    return 0;
}
