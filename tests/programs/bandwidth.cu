/*
 * Copies of several sizes, pinned and pageable, both ways and within the device, every byte checked. Prints no times
 * without --times.
 */
#include <chrono>
#include <cstring>
#include <vector>

#include "check.h"

static bool is_printing_times;

static unsigned char pattern(size_t i, size_t seed)
{
    return (unsigned char)((i * 2654435761u) >> 16 ^ seed);
}

static void copy(const char *what, void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    auto begin = std::chrono::steady_clock::now();
    CHECK(cudaMemcpy(to, from, bytes, kind));
    CHECK(cudaDeviceSynchronize());
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (is_printing_times) {
        std::printf("  %s %.3f GB/s\n", what, bytes / seconds.count() / 1e9);
    }
}

static bool round_trip(unsigned char *host, unsigned char *back, size_t bytes)
{
    unsigned char *device, *second;
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMalloc(&second, bytes));
    for (size_t i = 0; i < bytes; i++) {
        host[i] = pattern(i, bytes);
    }
    std::memset(back, 0, bytes);
    copy("to device", device, host, bytes, cudaMemcpyHostToDevice);
    copy("on device", second, device, bytes, cudaMemcpyDeviceToDevice);
    CHECK(cudaMemset(device, 0x5a, bytes));
    copy("to host", back, second, bytes, cudaMemcpyDefault);
    bool is_right = std::memcmp(host, back, bytes) == 0;
    copy("to host", back, device, bytes, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < bytes; i++) {
        is_right = is_right && back[i] == 0x5a;
    }
    CHECK(cudaFree(device));
    CHECK(cudaFree(second));
    return is_right;
}

int main(int argc, char **argv)
{
    is_printing_times = argc > 1 && std::strcmp(argv[1], "--times") == 0;
    bool is_all_right = true;
    for (size_t bytes : {size_t(1), size_t(4096), size_t(65537), size_t(1) << 20, (size_t(16) << 20) + 3}) {
        std::vector<unsigned char> pageable(bytes), pageable_back(bytes);
        unsigned char *pinned, *pinned_back;
        CHECK(cudaMallocHost(&pinned, bytes));
        CHECK(cudaMallocHost(&pinned_back, bytes));
        bool is_pinned_right = round_trip(pinned, pinned_back, bytes);
        bool is_pageable_right = round_trip(pageable.data(), pageable_back.data(), bytes);
        std::printf("%zu bytes: pinned %s, pageable %s\n", bytes, is_pinned_right ? "right" : "WRONG",
                    is_pageable_right ? "right" : "WRONG");
        is_all_right = is_all_right && is_pinned_right && is_pageable_right;
        CHECK(cudaFreeHost(pinned));
        CHECK(cudaFreeHost(pinned_back));
    }
    return verdict(is_all_right);
}
