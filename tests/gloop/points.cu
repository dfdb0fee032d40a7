/*
 * What points and requests cost: nvcc -O2 -std=c++17 --extended-lambda -arch=sm_90 -I gloop/include -o points
 * tests/gloop/points.cu
 * ./points [DIVISOR]: a table, of so many times fewer points and requests where a device is slow.
 */
#include <chrono>
#include <cstdio>
#include <gloop/gloop.cuh>
#include <string>

using gloop::DeviceLoop;
using gloop::Global;
using gloop::Shared;

namespace
{

template <class Where> __device__ void chain(DeviceLoop<Where> *loop, unsigned left)
{
    if (left) {
        loop->postTask([=](DeviceLoop<Where> *loop) { chain(loop, left - 1); });
    }
}

__device__ void pass(DeviceLoop<> *loop, unsigned left, unsigned *sink)
{
    for (; left; left--) {
        if (loop->postTaskIfNecessary([=](DeviceLoop<> *loop) { pass(loop, left - 1, sink); })) {
            return;
        }
    }
    *sink = left;
}

/* A socket that is none, which the thread that looks answers itself. */
__device__ void ask(DeviceLoop<> *loop, unsigned left)
{
    if (left) {
        gloop::net::close(loop, -1, [=](DeviceLoop<> *loop, int) { ask(loop, left - 1); });
    }
}

/* A file that is none, which another thread answers. */
__device__ void ask_files(DeviceLoop<> *loop, unsigned left)
{
    if (left) {
        gloop::fs::fstat(loop, -1, [=](DeviceLoop<> *loop, int) { ask_files(loop, left - 1); });
    }
}

__global__ void step(unsigned *sink)
{
    *sink = 1;
}

template <class Run> double seconds_of(const Run &run)
{
    run(); /* once before: code is loaded, memory is there */
    const auto before = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

template <class Where> double ns_of_point(gloop::HostLoop &host, unsigned nr_threads, unsigned nr_points)
{
    return 1e9 / nr_points * seconds_of([&] {
               host.launch<Where>(1, nr_threads, [=] __device__(DeviceLoop<Where> *loop) { chain(loop, nr_points); });
           });
}

} // namespace

int main(int nr_arguments, char **arguments)
{
    const unsigned divisor = nr_arguments > 1 ? std::stoul(arguments[1]) : 1;
    const unsigned nr_points = 1000000 / divisor, nr_launches = 100000 / divisor, nr_requests = 10000 / divisor;
    unsigned *sink = nullptr;
    cudaMalloc(&sink, sizeof(*sink));
    gloop::Options options;
    options.idle_us = 0;
    gloop::HostLoop host(options);
    for (const unsigned nr_threads : {1u, 32u, 256u, 1024u}) {
        std::printf("point, %4u threads: shared %6.0f ns, global %6.0f ns\n", nr_threads,
                    ns_of_point<Shared>(host, nr_threads, nr_points), ns_of_point<Global>(host, nr_threads, nr_points));
        std::fflush(stdout);
    }
    const double s_passed =
        seconds_of([&] { host.launch(1, 1, [=] __device__(DeviceLoop<> *loop) { pass(loop, nr_points, sink); }); });
    std::printf("postTaskIfNecessary, 1 thread: %.0f ns\n", 1e9 / nr_points * s_passed);
    const double s_launched = seconds_of([&] {
        for (unsigned launch = 0; launch < nr_launches; launch++) {
            step<<<1, 1>>>(sink);
        }
        cudaDeviceSynchronize();
    });
    std::printf("launch for each step: %.0f ns\n", 1e9 / nr_launches * s_launched);
    for (const unsigned nr_blocks : {1u, 132u, 264u}) {
        const double s_asked = seconds_of(
            [&] { host.launch(nr_blocks, 32, [=] __device__(DeviceLoop<> *loop) { ask(loop, nr_requests); }); });
        const double s_files = seconds_of(
            [&] { host.launch(nr_blocks, 32, [=] __device__(DeviceLoop<> *loop) { ask_files(loop, nr_requests); }); });
        std::printf("request, %3u blocks: %6.2f us, by another thread %6.2f us\n", nr_blocks,
                    1e6 / nr_requests * s_asked, 1e6 / nr_requests * s_files);
        std::fflush(stdout);
    }
    return 0;
}
