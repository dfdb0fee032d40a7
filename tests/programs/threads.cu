/*
 * Host threads launch at the same time, each on its own stream; and a relay on one common stream: each thread waits for
 * a flag from the one before and launches, without synchronizing. The device must see the launches in that order.
 */
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

constexpr int nr_host_threads = 4, nr_launches = 50, nr = 1024;

__global__ void add_one(int *values)
{
    values[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

__global__ void double_and_add(int *values, int addend)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = values[i] * 2 + addend;
}

int main()
{
    int *slices, *shared;
    std::vector<int> host(nr_host_threads * nr), shared_host(nr);
    CHECK(cudaMalloc(&slices, host.size() * sizeof(int)));
    CHECK(cudaMalloc(&shared, nr * sizeof(int)));
    CHECK(cudaMemset(slices, 0, host.size() * sizeof(int)));
    CHECK(cudaMemset(shared, 0, nr * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    cudaStream_t common;
    CHECK(cudaStreamCreateWithFlags(&common, cudaStreamNonBlocking));
    std::atomic<int> turn{0};
    std::vector<std::thread> threads;
    for (int self = 0; self < nr_host_threads; self++) {
        threads.emplace_back([=, &turn] {
            CHECK(cudaSetDevice(0));
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int launch = 0; launch < nr_launches; launch++) {
                add_one<<<nr / 256, 256, 0, stream>>>(slices + self * nr);
            }
            CHECK(cudaGetLastError());
            while (turn.load() != self) {
                std::this_thread::yield();
            }
            double_and_add<<<nr / 256, 256, 0, common>>>(shared, self + 1);
            turn.store(self + 1);
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(cudaStreamSynchronize(common));
    CHECK(cudaMemcpy(host.data(), slices, host.size() * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(shared_host.data(), shared, nr * sizeof(int), cudaMemcpyDeviceToHost));
    int nr_wrong = 0, expected = 0;
    for (int value : host) {
        nr_wrong += value != nr_launches;
    }
    for (int self = 0; self < nr_host_threads; self++) {
        expected = expected * 2 + self + 1;
    }
    for (int value : shared_host) {
        nr_wrong += value != expected;
    }
    std::printf("%d host threads, %d launches each, relay %d, %d wrong\n", nr_host_threads, nr_launches, expected,
                nr_wrong);
    return verdict(nr_wrong == 0);
}
