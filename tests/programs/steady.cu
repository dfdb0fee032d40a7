/*
 * Small kernels and copies, each looked at, until a file is there, so that something can happen meanwhile. Prints
 * "running" after the first round. With more LAUNCHES in each round it wants the GPU nearly all the time.
 * Usage: steady [FILE [LAUNCHES]]; without a file it does three rounds
 */
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "check.h"

__global__ void add(int *values, int nr, int what)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        values[i] += what;
    }
}

int main(int argc, char **argv)
{
    constexpr int nr = 10'000;
    const int nr_launches = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<int> values(nr);
    int *device, sum = 0, nr_wrong = 0;
    CHECK(cudaMalloc(&device, nr * sizeof(int)));
    CHECK(cudaMemset(device, 0, nr * sizeof(int)));
    for (int round = 1; argc > 1 ? access(argv[1], F_OK) != 0 : round <= 3; round++) {
        for (int launch = 0; launch < nr_launches; launch++) {
            sum += round % 7;
            add<<<(nr + 255) / 256, 256>>>(device, nr, round % 7);
        }
        CHECK(cudaMemcpy(values.data(), device, nr * sizeof(int), cudaMemcpyDeviceToHost));
        for (int value : values) {
            nr_wrong += value != sum;
        }
        if (round == 1) {
            std::printf("running\n");
            std::fflush(stdout);
        }
    }
    CHECK(cudaFree(device));
    return verdict(nr_wrong == 0);
}
