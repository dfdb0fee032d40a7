/*
 * One kernel that lasts a given time, so that something can happen meanwhile. Prints "running" when it has been
 * launched, and what the synchronisation gave. Usage: spin [MILLISECONDS [FILE]]. With a file the time begins when the
 * file is there, which is when all that was to happen has.
 */
#include <atomic>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "check.h"

__global__ void spin(unsigned long long duration_ns, const volatile int *is_there)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (is_there && !*is_there) {
            begin = now;
        }
        __nanosleep(100000); /* so that where the device is the CPU others have it */
    } while (now - begin <= duration_ns);
}

int main(int argc, char **argv)
{
    unsigned long long duration_ms = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20;
    const char *file = argc > 2 ? argv[2] : nullptr;
    volatile int *is_there = nullptr;
    if (file) {
        CHECK(cudaHostAlloc((void **)&is_there, sizeof(*is_there), cudaHostAllocMapped));
        *is_there = 0;
    }
    spin<<<1, 1>>>(duration_ms * 1000000, is_there);
    CHECK(cudaGetLastError());
    std::printf("running\n");
    std::fflush(stdout);
    std::atomic<bool> is_over(false);
    std::thread looker;
    if (file) {
        looker = std::thread([&] {
            while (!*is_there && !is_over) {
                *is_there = access(file, F_OK) == 0;
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
    }
    cudaError_t result = cudaDeviceSynchronize();
    is_over = true;
    if (file) {
        looker.join();
    }
    std::printf("synchronize: %s\n", cudaGetErrorName(result));
    return verdict(result == cudaSuccess);
}
