/*
 * Compiled with --default-stream per-thread: <<<>>> without a stream, and the copies, go to each host thread's own
 * default stream.
 */
#include <thread>
#include <vector>

#include "check.h"

constexpr int nr_host_threads = 3, nr = 4096;

__global__ void power(unsigned int *values, int nr_steps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int value = i;
    for (int step = 0; step < nr_steps; step++) {
        value = value * value + 1;
    }
    values[i] = value;
}

static void run(int self, int *nr_wrong)
{
    int nr_steps = self + 2;
    unsigned int *device;
    std::vector<unsigned int> host(nr);
    CHECK(cudaMalloc(&device, nr * sizeof(unsigned int)));
    CHECK(cudaMemsetAsync(device, 0xff, nr * sizeof(unsigned int)));
    power<<<nr / 128, 128>>>(device, nr_steps);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(host.data(), device, nr * sizeof(unsigned int), cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(nullptr)); /* of this thread, in this compilation */
    CHECK(cudaStreamQuery(cudaStreamPerThread));
    for (int i = 0; i < nr; i++) {
        unsigned int expected = i;
        for (int step = 0; step < nr_steps; step++) {
            expected = expected * expected + 1;
        }
        *nr_wrong += host[i] != expected;
    }
    CHECK(cudaFree(device));
}

int main()
{
    int nr_wrong[nr_host_threads] = {0}, total = 0;
    std::vector<std::thread> threads;
    for (int self = 0; self < nr_host_threads; self++) {
        threads.emplace_back(run, self, &nr_wrong[self]);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (int wrong : nr_wrong) {
        total += wrong;
    }
    std::printf("%d threads with a default stream each, %d wrong\n", nr_host_threads, total);
    return verdict(total == 0);
}
