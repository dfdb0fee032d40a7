/*
 * How long a program waits for the host, in one way of waiting; benchmarks/wakeup.py runs it in a virtual machine.
 * Prints one line of JSON, medians in microseconds:
 *
 *   call         a synchronous call while both sides are awake
 *   after_pause  the same after PAUSE_MS in which nobody asked for anything: the worker sleeps
 *   synchronise  waiting for a kernel of KERNEL_MS with cudaDeviceScheduleBlockingSync, so that the program sleeps,
 *                less those milliseconds
 *
 * Usage: wakeup REPETITIONS
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#define PAUSE_MS  20
#define KERNEL_MS 4

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t check_result = (call);                                                                             \
        if (check_result != cudaSuccess) {                                                                             \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(check_result));                                   \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

__global__ void spin(unsigned long long duration_ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < duration_ns);
}

template <typename Step> static double measured_us(Step step)
{
    auto begin = std::chrono::steady_clock::now();
    step();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

static double median(std::vector<double> values)
{
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

static void ask()
{
    size_t free_bytes, all_bytes;
    CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
}

static void pause_a_while()
{
    const struct timespec pause = {0, PAUSE_MS * 1000000};
    nanosleep(&pause, nullptr);
}

int main(int argc, char **argv)
{
    const int nr = argc > 1 ? std::atoi(argv[1]) : 50;
    if (nr < 1) {
        return 2;
    }
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    std::vector<double> calls, after_pauses, synchronisations;
    spin<<<1, 1>>>(1000);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < nr; i++) {
        pause_a_while();
        after_pauses.push_back(measured_us(ask));
        for (int j = 0; j < 10; j++) {
            calls.push_back(measured_us(ask));
        }
        spin<<<1, 1>>>(KERNEL_MS * 1000000ull);
        synchronisations.push_back(measured_us([] { CHECK(cudaDeviceSynchronize()); }) - KERNEL_MS * 1000.0);
    }
    std::printf("{\"call\": %.2f, \"after_pause\": %.2f, \"synchronise\": %.2f}\n", median(calls), median(after_pauses),
                median(synchronisations));
    return 0;
}
