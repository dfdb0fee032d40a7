/*
 * What the ports to GLoop share. A port runs the same kernels in three ways, by --way: plain, as its original does;
 * split, in many launches between which others may have the device; and gloop, by callbacks. NAME.cuh has the kernels,
 * for one block of all three ways, NAME.cu the ways and the inputs, NAME_loops.c the loops that results are checked
 * against.
 *
 * The rest is benchmarks/programs/common.h's: a round is the whole program once, copies and files included. Kernels are
 * timed apart from it, from one moment at which the device has nothing to do to the next one.
 *
 * Kernels say of the pointers that callbacks keep that they are global ones: docs/gloop.md has why.
 *
 * Errors of gloop are exceptions, and end the program with a sentence and status 2, as CUDA's do.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_PORT_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_PORT_CUH

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <exception>
#include <memory>
#include <string>
#include <time.h>
#include <vector>

#include "common.h"
#include "gloop/gloop.cuh"

enum port_way { PORT_PLAIN, PORT_SPLIT, PORT_GLOOP, NR_PORT_WAYS };

struct port {
    struct benchmark benchmark; /* its device_round is the one of the way */
    size_t soft_size, gpu_size; /* what --size soft and --size gpu stand for */
    void (*rounds[NR_PORT_WAYS])(void);
    gloop::Options options; /* of the host loop */
};

static const char *const port_way_names[NR_PORT_WAYS] = {"plain", "split", "gloop"};

static struct {
    const struct port *port;
    enum port_way way;
    std::unique_ptr<gloop::HostLoop> host;
    std::vector<double> kernel_s, round_s; /* of each round but the first, which loads the module */
    double kernels_s;                      /* of this round */
    bool is_warm;
} port_run;

static double port_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* The loop of this process. Made by whoever needs it first. */
static gloop::HostLoop &port_host(void)
{
    if (!port_run.host) {
        port_run.host = std::make_unique<gloop::HostLoop>(port_run.port->options);
    }
    return *port_run.host;
}

/* Runs what launches kernels, and notes how long they took. */
template <class Kernels> static void port_time(Kernels kernels)
{
    BENCHMARK_CUDA(cudaDeviceSynchronize());
    double begin_s = port_now_s();
    kernels();
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
    port_run.kernels_s += port_now_s() - begin_s;
}

/* How many blocks of a kernel the device holds at a time. */
static int port_resident(const void *kernel, int nr_threads, size_t shared_bytes)
{
    int device, nr_multiprocessors, nr_blocks;
    BENCHMARK_CUDA(cudaGetDevice(&device));
    BENCHMARK_CUDA(cudaDeviceGetAttribute(&nr_multiprocessors, cudaDevAttrMultiProcessorCount, device));
    BENCHMARK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_blocks, kernel, nr_threads, shared_bytes));
    return nr_multiprocessors * nr_blocks;
}

static void port_round(void)
{
    double begin_s = port_now_s();
    port_run.kernels_s = 0;
    try {
        port_run.port->rounds[port_run.way]();
    } catch (const std::exception &error) {
        benchmark_fail("%s", error.what());
    }
    if (port_run.is_warm) {
        port_run.kernel_s.push_back(port_run.kernels_s);
        port_run.round_s.push_back(port_now_s() - begin_s);
    }
    port_run.is_warm = true;
}

static double port_median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

static void port_report(void)
{
    printf(", \"way\": \"%s\", \"kernel_s\": %.9g, \"round_s\": %.9g", port_way_names[port_run.way],
           port_median(port_run.kernel_s), port_median(port_run.round_s));
}

/* Takes `--name value` off the command line. NULL where it is not there. */
static const char *port_take(int *argc, char **argv, const char *name)
{
    for (int at = 1; at + 1 < *argc; at++) {
        if (strcmp(argv[at], name) == 0) {
            const char *value = argv[at + 1];
            std::copy(argv + at + 2, argv + *argc + 1, argv + at);
            *argc -= 2;
            return value;
        }
    }
    return NULL;
}

/* Takes `--name` off the command line, and tells whether it was there. */
static bool port_take_flag(int *argc, char **argv, const char *name)
{
    for (int at = 1; at < *argc; at++) {
        if (strcmp(argv[at], name) == 0) {
            std::copy(argv + at + 1, argv + *argc + 1, argv + at);
            *argc -= 1;
            return true;
        }
    }
    return false;
}

/* Takes a number from 1 to `most`. */
static size_t port_take_number(int *argc, char **argv, const char *name, size_t otherwise, size_t most)
{
    const char *text = port_take(argc, argv, name);
    char *end = NULL;
    size_t value = text ? strtoul(text, &end, 10) : otherwise;
    if (text && (*end || value < 1 || value > most)) {
        benchmark_fail("%s %s is not a number from 1 to %zu", name, text, most);
    }
    return value;
}

static enum port_way port_take_way(int *argc, char **argv)
{
    const char *text = port_take(argc, argv, "--way");
    for (int way = 0; text && way < NR_PORT_WAYS; way++) {
        if (strcmp(text, port_way_names[way]) == 0) {
            return (enum port_way)way;
        }
    }
    if (text) {
        benchmark_fail("there is no way %s; there are plain, split and gloop", text);
    }
    return PORT_GLOOP;
}

/* Everything a main does, after it took options of its own. */
static int port_main(struct port *port, int argc, char **argv)
{
    port_run.port = port;
    port_run.way = port_take_way(&argc, argv);
    const char *size = port_take(&argc, argv, "--size");
    port->benchmark.default_size = port->soft_size;
    std::string number = size ? size : "soft";
    if (number == "soft" || number == "gpu") {
        number = std::to_string(number == "gpu" ? port->gpu_size : port->soft_size);
    }
    port->benchmark.device_round = port_round;
    port->benchmark.report = port_report;
    std::vector<char *> words(argv, argv + argc);
    char size_name[] = "--size";
    words.insert(words.begin() + 1, {size_name, number.data()});
    words.push_back(NULL);
    int status = benchmark_main(&port->benchmark, argc + 2, words.data());
    port_run.host.reset();
    return status;
}

#endif
