/*
 * How soon the host knows that an empty kernel has ended, by what it asks: natively, to see what of launch_sync through
 * FairGV is the way of asking and what the transport. Prints one line each, "name value unit", medians.
 *
 * A worker may not block in the driver, so it looks again and again; what a look costs, and what it costs to mark the
 * place that is looked for, is part of the answer.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

#include "check.h"

static const long long LONG_NS = 1000000;

__global__ void work(long long ns)
{
    const long long begun_ns = [] {
        long long now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        return now;
    }();
    for (long long now = begun_ns; now - begun_ns < ns;) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    }
}

__global__ void empty() {}

static double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> values)
{
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

/* Median of single calls; `before` is not timed. */
static double call_us(int nr, const std::function<void()> &before, const std::function<void()> &call)
{
    std::vector<double> times;
    for (int i = 0; i < nr; i++) {
        before();
        double begun = now_us();
        call();
        times.push_back(now_us() - begun);
    }
    return median(times);
}

static void print(const char *name, double value, const char *unit)
{
    std::printf("%-32s %8.3f %s\n", name, value, unit);
}

typedef CUresult (*write_value_fn)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

static write_value_fn find_write_value()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &found, 12000, cudaEnableDefault, &result) !=
        cudaSuccess) {
        return nullptr;
    }
    return result == cudaDriverEntryPointSuccess ? (write_value_fn)found : nullptr;
}

/* What is asked, and what is needed for that. */
struct scene {
    cudaStream_t stream;
    cudaEvent_t event;
    volatile unsigned int *seen; /* pinned */
    unsigned int value = 0;
    long nr_looks = 0;
    write_value_fn write_value = find_write_value();

    scene()
    {
        void *word = nullptr;
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaMallocHost(&word, sizeof(*seen)));
        seen = (volatile unsigned int *)word;
        *seen = 0;
    }
    void launch() { empty<<<1, 1, 0, stream>>>(); }
    void sync() { CHECK(cudaStreamSynchronize(stream)); }
    void record() { CHECK(cudaEventRecord(event, stream)); }
    void event_sync() { CHECK(cudaEventSynchronize(event)); }
    void write() { write_value((CUstream)stream, (CUdeviceptr)seen, ++value, CU_STREAM_WRITE_VALUE_DEFAULT); }
    cudaError_t ask_event() { return cudaEventQuery(event); }
    cudaError_t ask_stream() { return cudaStreamQuery(stream); }
    void until(cudaError_t (scene::*ask)())
    {
        for (nr_looks++; (this->*ask)() == cudaErrorNotReady; nr_looks++)
            ;
    }
    void until_written()
    {
        while (*seen != value)
            ;
    }
    void be_busy() { sync(), work<<<1, 1, 0, stream>>>(LONG_NS); }
};

static void nothing() {}

/* From the launch to the moment at which its end is known. */
static void whole_ways(scene &all, int nr)
{
    print("launch, StreamSynchronize", call_us(nr, nothing, [&] { all.launch(), all.sync(); }), "us");
    print("launch, EventRecord, EventSync", call_us(nr, nothing, [&] { all.launch(), all.record(), all.event_sync(); }),
          "us");
    all.nr_looks = 0;
    print("launch, EventRecord, EventQuery",
          call_us(nr, nothing, [&] { all.launch(), all.record(), all.until(&scene::ask_event); }), "us");
    print("  looks", double(all.nr_looks) / nr, "each");
    all.nr_looks = 0;
    print("launch, StreamQuery", call_us(nr, nothing, [&] { all.launch(), all.until(&scene::ask_stream); }), "us");
    print("  looks", double(all.nr_looks) / nr, "each");
    if (all.write_value) {
        print("launch, WriteValue, memory",
              call_us(nr, nothing, [&] { all.launch(), all.write(), all.until_written(); }), "us");
    }
}

static void single_calls(scene &all, int nr)
{
    const int nr_long = std::max(nr / 50, 1);
    const auto launched = [&] { all.sync(), all.launch(); };
    print("LaunchKernel", call_us(nr, [&] { all.sync(); }, [&] { all.launch(); }), "us");
    print("EventRecord behind a kernel", call_us(nr, launched, [&] { all.record(); }), "us");
    if (all.write_value) {
        print("WriteValue behind a kernel", call_us(nr, launched, [&] { all.write(); }), "us");
    }
    all.record(), all.sync();
    print("EventQuery, done", call_us(nr, nothing, [&] { all.ask_event(); }), "us");
    print("StreamQuery, done", call_us(nr, nothing, [&] { all.ask_stream(); }), "us");
    print("StreamSynchronize, done", call_us(nr, nothing, [&] { all.sync(); }), "us");
    print("EventQuery, not done",
          call_us(nr_long, [&] { all.be_busy(), all.record(), all.ask_event(); }, [&] { all.ask_event(); }), "us");
    print("StreamQuery, not done",
          call_us(nr_long, [&] { all.be_busy(), all.ask_stream(); }, [&] { all.ask_stream(); }), "us");
    all.sync();
}

int main(int argc, char **argv)
{
    const int nr = argc > 1 ? std::atoi(argv[1]) : 5000;
    scene all;
    all.launch(), all.sync();
    whole_ways(all, nr);
    single_calls(all, nr);
    return 0;
}
