/*
 * An empty kernel, many times: what a launch costs. Prints no times without --times. Usage: empty_launch [NR_LAUNCHES]
 * [--times]
 */
#include <chrono>
#include <cstring>

#include "check.h"

__global__ void empty() {}

static double seconds_since(std::chrono::steady_clock::time_point begin)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main(int argc, char **argv)
{
    int nr_launches = argc > 1 && argv[1][0] != '-' ? std::atoi(argv[1]) : 1000;
    bool is_printing_times = std::strcmp(argv[argc - 1], "--times") == 0;
    empty<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    auto begin = std::chrono::steady_clock::now();
    for (int launch = 0; launch < nr_launches; launch++) {
        empty<<<1, 1>>>();
    }
    double asynchronous = seconds_since(begin);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    begin = std::chrono::steady_clock::now();
    for (int launch = 0; launch < nr_launches; launch++) {
        empty<<<1, 1>>>();
        CHECK(cudaDeviceSynchronize());
    }
    double synchronous = seconds_since(begin);
    std::printf("%d launches, asynchronous and synchronous\n", nr_launches);
    if (is_printing_times) {
        std::printf("asynchronous %.3f us, with synchronize %.3f us\n", asynchronous / nr_launches * 1e6,
                    synchronous / nr_launches * 1e6);
    }
    return verdict(cudaGetLastError() == cudaSuccess);
}
