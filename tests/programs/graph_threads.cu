/*
 * Threads that capture at the same time, each in streams of its own and thread-local, while another one computes; then
 * each launches its graph again and again.
 */
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

static const int nr_threads = 3, nr = 2048, nr_nodes = 8, nr_launches = 10;

__global__ void add(int *data, int value)
{
    data[blockIdx.x * blockDim.x + threadIdx.x] += value;
}

static std::atomic<int> nr_capturing;
static int nr_wrong[nr_threads + 1];

static int check(int *data, cudaStream_t stream, int expected)
{
    int *host, wrong = 0;
    CHECK(cudaMallocHost(&host, nr * sizeof(int)));
    CHECK(cudaMemcpyAsync(host, data, nr * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < nr; i++) {
        wrong += host[i] != expected;
    }
    CHECK(cudaFreeHost(host));
    return wrong;
}

static void capture(int index, int *data)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemsetAsync(data, 0, nr * sizeof(int), stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    nr_capturing++;
    while (nr_capturing < nr_threads) { /* all of them at once */
        std::this_thread::yield();
    }
    for (int i = 0; i < nr_nodes; i++) {
        add<<<nr / 256, 256, 0, stream>>>(data, index + 1);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < nr_launches; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
    }
    nr_wrong[index] = check(data, stream, nr_launches * nr_nodes * (index + 1));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

static void compute(int *data)
{
    cudaStream_t stream;
    int nr_rounds = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemsetAsync(data, 0, nr * sizeof(int), stream));
    while (nr_capturing < nr_threads || nr_rounds < 20) {
        add<<<nr / 256, 256, 0, stream>>>(data, 1);
        CHECK(cudaStreamSynchronize(stream));
        nr_rounds++;
    }
    nr_wrong[nr_threads] = check(data, stream, nr_rounds);
    CHECK(cudaStreamDestroy(stream));
}

int main()
{
    std::vector<int *> data(nr_threads + 1);
    for (int *&each : data) {
        CHECK(cudaMalloc(&each, nr * sizeof(int)));
    }
    add<<<nr / 256, 256>>>(data[0], 0);
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> threads;
    for (int i = 0; i < nr_threads; i++) {
        threads.emplace_back(capture, i, data[i]);
    }
    threads.emplace_back(compute, data[nr_threads]);
    for (std::thread &thread : threads) {
        thread.join();
    }
    int wrong = 0;
    for (int each : nr_wrong) {
        wrong += each;
    }
    std::printf("%d threads captured at once, one computed, %d wrong\n", nr_threads, wrong);
    for (int *each : data) {
        CHECK(cudaFree(each));
    }
    return verdict(wrong == 0);
}
