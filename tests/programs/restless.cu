/*
 * Never at rest, until its input ends: threads make memory, streams, events and pinned memory, use them, look at what
 * came of it, and give them back, while what was made first is changed and stays. Whatever happens to the program
 * meanwhile, all of it has to be right. Says "ready" once all have been through it.
 */
#include <atomic>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

static const size_t NR_KEPT = 1 << 20;

static std::atomic<bool> is_over{false}, is_wrong{false};
static std::atomic<unsigned> nr_through{0};

__global__ void fill(unsigned *values, size_t nr, unsigned first)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        values[i] = first + (unsigned)i;
    }
}

__global__ void add(unsigned *values, size_t nr, unsigned what)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        values[i] += what;
    }
}

__global__ void differ(const unsigned *values, size_t nr, unsigned first, unsigned *nr_wrong)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        if (values[i] != first + (unsigned)i) {
            atomicAdd(nr_wrong, 1);
        }
    }
}

static void look(bool is_right, const char *what)
{
    if (!is_right && !is_wrong.exchange(true)) {
        std::printf("wrong: %s\n", what);
    }
}

/* Memory of many sizes, each of which is what was written to it. */
static void allocate(unsigned round)
{
    const size_t nr = (size_t)1 << (8 + round % 13);
    unsigned *values, *nr_wrong, found = 1;
    CHECK(cudaMalloc(&values, nr * sizeof(*values)));
    CHECK(cudaMalloc(&nr_wrong, sizeof(*nr_wrong)));
    CHECK(cudaMemset(nr_wrong, 0, sizeof(*nr_wrong)));
    fill<<<4, 64>>>(values, nr, round);
    std::this_thread::sleep_for(std::chrono::microseconds(round % 1000));
    differ<<<4, 64>>>(values, nr, round, nr_wrong);
    CHECK(cudaMemcpy(&found, nr_wrong, sizeof(found), cudaMemcpyDeviceToHost));
    look(found == 0, "memory that was just written");
    CHECK(cudaFree(nr_wrong));
    CHECK(cudaFree(values));
}

/* Streams and events that come and go, and copies from and to pinned memory in them. */
static void order(unsigned round)
{
    const size_t nr = 1 << 12;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    unsigned *pinned, *values;
    float ms = -1;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaMallocHost(&pinned, nr * sizeof(*pinned)));
    CHECK(cudaMalloc(&values, nr * sizeof(*values)));
    for (size_t i = 0; i < nr; i++) {
        pinned[i] = round * 3 + (unsigned)i;
    }
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaMemcpyAsync(values, pinned, nr * sizeof(*values), cudaMemcpyHostToDevice, stream));
    std::this_thread::sleep_for(std::chrono::microseconds(round % 700));
    add<<<2, 64, 0, stream>>>(values, nr, 5);
    CHECK(cudaMemcpyAsync(pinned, values, nr * sizeof(*values), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    look(ms >= 0 && ms < 60000, "the time between two events");
    for (size_t i = 0; i < nr; i++) {
        look(pinned[i] == round * 3 + (unsigned)i + 5, "what came back by pinned memory");
    }
    CHECK(cudaFree(values));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaStreamDestroy(stream));
}

/* Memory that stays, and changes all the time; a stream, and events that were recorded at first. */
struct kept {
    unsigned *values, *nr_wrong, added = 0;
    cudaStream_t stream;
    cudaEvent_t first, second;
    float ms;

    kept()
    {
        CHECK(cudaMalloc(&values, NR_KEPT * sizeof(*values)));
        CHECK(cudaMalloc(&nr_wrong, sizeof(*nr_wrong)));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&first));
        CHECK(cudaEventCreate(&second));
        CHECK(cudaEventRecord(first, stream));
        fill<<<4, 64, 0, stream>>>(values, NR_KEPT, 0);
        CHECK(cudaEventRecord(second, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&ms, first, second));
    }

    void change(unsigned round)
    {
        float then_ms = -1;
        unsigned found = 1;
        added += round;
        add<<<4, 64, 0, stream>>>(values, NR_KEPT, round);
        CHECK(cudaMemsetAsync(nr_wrong, 0, sizeof(*nr_wrong), stream));
        differ<<<4, 64, 0, stream>>>(values, NR_KEPT, added, nr_wrong);
        CHECK(cudaMemcpyAsync(&found, nr_wrong, sizeof(found), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        look(found == 0, "memory that stays");
        CHECK(cudaEventElapsedTime(&then_ms, first, second));
        look(then_ms - ms < 0.01f && ms - then_ms < 0.01f, "the time between events of the first round");
    }
};

template <typename Work> static void repeat(Work work)
{
    for (unsigned round = 1; !is_over && !is_wrong; round++) {
        work(round);
        nr_through += round == 1;
    }
}

int main()
{
    kept mine;
    std::vector<std::thread> threads;
    threads.emplace_back([] { repeat(allocate); });
    threads.emplace_back([] { repeat(order); });
    threads.emplace_back([&mine] { repeat([&mine](unsigned round) { mine.change(round); }); });
    while (nr_through < threads.size() && !is_wrong) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::printf("ready\n");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
    }
    is_over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    return verdict(!is_wrong);
}
