/*
 * Kernels of so many blocks, one after another, until the input ends. Each block counts itself, and after each kernel
 * all have to have been counted once more. Says "ready" after the first, and "right" for each line of input, when a
 * kernel that was launched since has been right. Usage: rounds [BLOCKS [PAUSE_US]]
 */
#include <poll.h>
#include <unistd.h>
#include <vector>

#include "check.h"

__global__ void count(unsigned *counts, unsigned length)
{
    unsigned value = blockIdx.x;
    for (unsigned i = 0; i < length; i++) {
        value = value * 1664525u + 1013904223u;
    }
    counts[blockIdx.x] += 1 + (value == 0 && length == 0);
}

/* Lines that came; -1: there will be no more. */
static int lines()
{
    pollfd input = {0, POLLIN, 0};
    char bytes[256];
    int nr = 0;
    if (poll(&input, 1, 0) > 0) {
        const ssize_t nr_bytes = read(0, bytes, sizeof(bytes));
        if (nr_bytes <= 0) {
            return -1;
        }
        for (ssize_t i = 0; i < nr_bytes; i++) {
            nr += bytes[i] == '\n';
        }
    }
    return nr;
}

int main(int argc, char **argv)
{
    const unsigned nr_blocks = argc > 1 ? (unsigned)std::atoi(argv[1]) : 64;
    const useconds_t pause_us = argc > 2 ? (useconds_t)std::atoi(argv[2]) : 0;
    std::vector<unsigned> counts(nr_blocks);
    unsigned *device, nr_wrong = 0;
    CHECK(cudaMalloc(&device, nr_blocks * sizeof(unsigned)));
    CHECK(cudaMemset(device, 0, nr_blocks * sizeof(unsigned)));
    int nr_asked = 0;
    for (unsigned round = 1; nr_asked >= 0 && nr_wrong == 0; round++) {
        count<<<nr_blocks, 1>>>(device, 2000);
        CHECK(cudaMemcpy(counts.data(), device, nr_blocks * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (unsigned each : counts) {
            nr_wrong += each != round;
        }
        if (round == 1 && nr_wrong == 0) {
            std::printf("ready\n");
        }
        for (int i = 0; i < nr_asked && nr_wrong == 0; i++) {
            std::printf("right\n");
        }
        usleep(pause_us);
        nr_asked = lines();
    }
    CHECK(cudaFree(device));
    return verdict(nr_wrong == 0);
}
