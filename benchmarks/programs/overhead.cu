/*
 * What single operations cost the caller. Prints one line each, "name value unit", the median of several rounds; run
 * natively and through FairGV, the two are compared by fairgv-bench overhead.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

#include "check.h"

__global__ void empty() {}

static double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Median over `nr_rounds` of the time that `operation` takes for each of its `nr_times`; `after` is not timed. */
static double median_us(int nr_rounds, int nr_times, const std::function<void()> &operation,
                        const std::function<void()> &after)
{
    std::vector<double> rounds;
    for (int round = 0; round < nr_rounds + 1; round++) {
        double begin = now_us();
        for (int time = 0; time < nr_times; time++) {
            operation();
        }
        if (round > 0) {
            rounds.push_back((now_us() - begin) / nr_times);
        }
        after();
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 2];
}

static void print(const char *name, double value, const char *unit)
{
    std::printf("%s %.4f %s\n", name, value, unit);
}

static void launches(int nr_rounds)
{
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    auto sync = [&] { CHECK(cudaStreamSynchronize(stream)); };
    auto nothing = [] {};
    auto launch = [&] { empty<<<1, 1, 0, stream>>>(); };
    print("launch_async", median_us(nr_rounds, 500, launch, sync), "us");
    print("launch_sync", median_us(nr_rounds, 200, [&] { launch(), sync(); }, nothing), "us");
    print("stream_sync_idle", median_us(nr_rounds, 200, sync, nothing), "us");
    print("event_record", median_us(nr_rounds, 200, [&] { CHECK(cudaEventRecord(event, stream)); }, sync), "us");
    print("event_query", median_us(nr_rounds, 200, [&] { CHECK(cudaEventQuery(event)); }, sync), "us");
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
}

static void small_copies(int nr_rounds)
{
    char host[4096] = {0}, *device;
    CHECK(cudaMalloc(&device, sizeof(host)));
    auto nothing = [] {};
    auto sync = [] { CHECK(cudaDeviceSynchronize()); };
    auto back = [&] { CHECK(cudaMemcpy(host, device, 4, cudaMemcpyDeviceToHost)); };
    auto out = [&] { CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice)); };
    auto allocate = [&] {
        void *memory;
        CHECK(cudaMalloc(&memory, 1 << 20));
        CHECK(cudaFree(memory));
    };
    print("copy_back_4B", median_us(nr_rounds, 100, back, nothing), "us");
    print("copy_out_4KiB", median_us(nr_rounds, 100, out, sync), "us");
    print("malloc_free_1MiB", median_us(nr_rounds, 20, allocate, nothing), "us");
    CHECK(cudaFree(device));
}

static void large_copies(int nr_rounds, size_t nr_bytes)
{
    char *device, *pinned, *pageable = (char *)std::malloc(nr_bytes);
    CHECK(cudaMalloc(&device, nr_bytes));
    CHECK(cudaMallocHost(&pinned, nr_bytes));
    std::memset(pageable, 1, nr_bytes);
    std::memset(pinned, 2, nr_bytes);
    auto nothing = [] {};
    auto copy = [&](const char *name, void *to, const void *from, cudaMemcpyKind kind) {
        double us = median_us(
            nr_rounds, 1,
            [&] {
                CHECK(cudaMemcpy(to, from, nr_bytes, kind));
                CHECK(cudaDeviceSynchronize());
            },
            nothing);
        print(name, nr_bytes / us / 1e3, "GB/s");
    };
    copy("pinned_to_device", device, pinned, cudaMemcpyHostToDevice);
    copy("pinned_from_device", pinned, device, cudaMemcpyDeviceToHost);
    copy("pageable_to_device", device, pageable, cudaMemcpyHostToDevice);
    copy("pageable_from_device", pageable, device, cudaMemcpyDeviceToHost);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    std::free(pageable);
}

int main(int argc, char **argv)
{
    int nr_rounds = argc > 1 ? std::atoi(argv[1]) : 20;
    size_t nr_mib = argc > 2 ? std::atoi(argv[2]) : 256;
    launches(nr_rounds);
    small_copies(nr_rounds);
    large_copies(nr_rounds > 5 ? nr_rounds / 4 : nr_rounds, nr_mib << 20);
    return 0;
}
