/*
 * Host functions and callbacks: called in the order of their stream, beside the caller and beside other streams; later
 * work of the stream waits for them. With the argument `forever`: ends at once while one runs that never returns. With
 * `fault`: after a kernel has failed, a callback learns of it and a host function is not called.
 */
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.h"

constexpr int nr_threads = 4, nr_rounds = 20;

__global__ void add(int *value, int addend)
{
    *value = *value * 3 + addend;
}

__global__ void write_far(int *nowhere)
{
    nowhere[threadIdx.x] = 1;
}

struct Step {
    int *value; /* pinned */
    int addend;
};

static void step(void *argument)
{
    const Step *what = static_cast<const Step *>(argument);
    *what->value = *what->value * 3 + what->addend;
}

static void wait_for(std::atomic<bool> &flag)
{
    while (!flag.load()) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

static void wait_function(void *flag)
{
    wait_for(*static_cast<std::atomic<bool> *>(flag));
}

static void set_function(void *flag)
{
    static_cast<std::atomic<bool> *>(flag)->store(true);
}

static std::atomic<int> nr_called_back{0}, last_status{-1};

static void called_back(cudaStream_t, cudaError_t status, void *addend)
{
    nr_called_back += *static_cast<int *>(addend);
    last_status = status;
}

/* Kernels and host functions take turns on one number. */
static bool keeps_order()
{
    int *value, expected = 1;
    Step steps[nr_rounds];
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaHostAlloc(&value, sizeof(int), cudaHostAllocMapped));
    *value = 1;
    for (int i = 0; i < nr_rounds; i++) {
        steps[i] = {value, 2 * i + 1};
        add<<<1, 1, 0, stream>>>(value, 2 * i);
        CHECK(cudaLaunchHostFunc(stream, step, &steps[i]));
        expected = (expected * 3 + 2 * i) * 3 + 2 * i + 1;
    }
    CHECK(cudaStreamSynchronize(stream));
    bool is_right = *value == expected;
    CHECK(cudaFreeHost(value));
    CHECK(cudaStreamDestroy(stream));
    return is_right;
}

/* A function waits for what the caller does afterwards, on another stream; an event carries the wait on. */
static bool blocks_nobody_else()
{
    std::atomic<bool> may_go{false}, is_behind{false};
    cudaStream_t stream, other, behind;
    cudaEvent_t event;
    int *values;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&behind, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaMalloc(&values, 3 * sizeof(int)));
    CHECK(cudaMemset(values, 0, 3 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(stream, wait_function, &may_go));
    add<<<1, 1, 0, stream>>>(values, 5);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(behind, event, 0));
    add<<<1, 1, 0, behind>>>(values, 7);
    CHECK(cudaLaunchHostFunc(behind, set_function, &is_behind));
    add<<<1, 1, 0, other>>>(values + 1, 3);
    CHECK(cudaStreamSynchronize(other));
    bool is_right = cudaStreamQuery(stream) == cudaErrorNotReady && cudaStreamQuery(behind) == cudaErrorNotReady &&
                    cudaEventQuery(event) == cudaErrorNotReady && !is_behind.load();
    std::thread helper([&] {
        add<<<1, 1, 0, other>>>(values + 1, 4);
        CHECK(cudaStreamSynchronize(other));
        may_go.store(true);
    });
    CHECK(cudaDeviceSynchronize());
    helper.join();
    int host[3];
    CHECK(cudaMemcpy(host, values, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(values));
    return is_right && is_behind.load() && host[0] == 5 * 3 + 7 && host[1] == 3 * 3 + 4;
}

/* The default stream waits for functions of blocking streams, and they for its. */
static bool keeps_legacy_order()
{
    int *value;
    cudaStream_t stream;
    std::atomic<bool> may_go{false};
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaHostAlloc(&value, sizeof(int), cudaHostAllocMapped));
    *value = 1;
    Step first = {value, 1}, second = {value, 3};
    CHECK(cudaLaunchHostFunc(stream, wait_function, &may_go));
    CHECK(cudaLaunchHostFunc(stream, step, &first));
    add<<<1, 1>>>(value, 2);
    CHECK(cudaLaunchHostFunc(stream, step, &second));
    CHECK(cudaLaunchHostFunc(nullptr, step, &first));
    bool is_right = *value == 1;
    may_go.store(true);
    CHECK(cudaDeviceSynchronize());
    is_right = is_right && *value == (((1 * 3 + 1) * 3 + 2) * 3 + 3) * 3 + 1;
    CHECK(cudaFreeHost(value));
    return is_right;
}

static bool takes_callbacks_of_threads()
{
    static int one = 1;
    std::vector<std::thread> threads;
    nr_called_back = 0;
    for (int i = 0; i < nr_threads; i++) {
        threads.emplace_back([] {
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int round = 0; round < nr_rounds; round++) {
                CHECK(cudaStreamAddCallback(stream, called_back, &one, 0));
            }
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return nr_called_back == nr_threads * nr_rounds && last_status == cudaSuccess;
}

static std::atomic<bool> has_returned{false};

static void wait_for_file(void *path)
{
    while (access(static_cast<const char *>(path), F_OK) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    has_returned = true;
}

/* Kernels wait behind a function that waits for a file. */
static int be_held(char *path)
{
    int *values;
    CHECK(cudaMalloc(&values, sizeof(int)));
    CHECK(cudaMemset(values, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(nullptr, wait_for_file, path));
    for (int i = 0; i < nr_rounds; i++) {
        add<<<1, 1>>>(values, i);
    }
    cudaStreamQuery(nullptr);
    std::printf("held\n");
    std::fflush(stdout);
    std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    std::fflush(stdout);
    wait_for(has_returned);
    std::printf("the function has returned\n");
    return 0;
}

static int end_with_one_running()
{
    static std::atomic<bool> is_running{false}, never{false};
    CHECK(cudaLaunchHostFunc(nullptr, set_function, &is_running));
    CHECK(cudaLaunchHostFunc(nullptr, wait_function, &never));
    wait_for(is_running);
    std::printf("running\n");
    std::fflush(stdout);
    std::_Exit(0);
}

static int fail_before_functions()
{
    static int one = 1;
    static std::atomic<bool> may_go{false}, is_called{false};
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaLaunchHostFunc(stream, wait_function, &may_go));
    write_far<<<1, 32, 0, stream>>>(reinterpret_cast<int *>(0x10));
    CHECK(cudaStreamAddCallback(stream, called_back, &one, 0));
    CHECK(cudaLaunchHostFunc(stream, set_function, &is_called));
    may_go.store(true);
    cudaError_t error = cudaStreamSynchronize(stream);
    while (nr_called_back == 0) {
        std::this_thread::yield();
    }
    std::printf("%s, callback %s, function %s\n", cudaGetErrorName(error),
                cudaGetErrorName(static_cast<cudaError_t>(last_status.load())), is_called ? "called" : "not called");
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(cudaFree(nullptr));
    if (argc > 1 && std::strcmp(argv[1], "forever") == 0) {
        return end_with_one_running();
    }
    if (argc > 1 && std::strcmp(argv[1], "fault") == 0) {
        return fail_before_functions();
    }
    if (argc > 2 && std::strcmp(argv[1], "held") == 0) {
        return be_held(argv[2]);
    }
    bool in_order = keeps_order(), beside = blocks_nobody_else();
    bool legacy = keeps_legacy_order(), of_threads = takes_callbacks_of_threads();
    std::printf("order %d, beside others %d, default stream %d, callbacks of threads %d\n", in_order, beside, legacy,
                of_threads);
    return verdict(in_order && beside && legacy && of_threads);
}
