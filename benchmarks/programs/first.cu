/*
 * Short programs, for what a program takes from exec to its end: `first WHAT` prints a sum that is the same wherever it
 * runs, and the milliseconds of its pieces.
 *
 *     vectors   adds two vectors of a million floats
 *     grid      a kernel of a million blocks, ten times
 *     mallocs   10,000 allocations of 64 bytes to 1 MiB, and their frees in another order
 *     kept      the same allocations, never freed
 */
#include <chrono>
#include <cstring>
#include <vector>

#include "check.h"

const int NR = 1 << 20, NR_MALLOCS = 10000;

static double now_ms()
{
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__global__ void add(const float *one, const float *two, float *out, int nr)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        out[i] = one[i] + two[i];
    }
}

__global__ void count(unsigned *out)
{
    if (threadIdx.x == 0) {
        out[blockIdx.x] += blockIdx.x;
    }
}

static double vectors()
{
    std::vector<float> one(NR, 1.0f), two(NR, 2.0f), sums(NR);
    float *device[3];
    for (float *&each : device) {
        CHECK(cudaMalloc(&each, NR * sizeof(float)));
    }
    CHECK(cudaMemcpy(device[0], one.data(), NR * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device[1], two.data(), NR * sizeof(float), cudaMemcpyHostToDevice));
    add<<<NR / 256, 256>>>(device[0], device[1], device[2], NR);
    CHECK(cudaMemcpy(sums.data(), device[2], NR * sizeof(float), cudaMemcpyDeviceToHost));
    for (float *each : device) {
        CHECK(cudaFree(each));
    }
    double sum = 0;
    for (float each : sums) {
        sum += each;
    }
    return sum;
}

static double grid()
{
    const int blocks = 1000000;
    unsigned *device;
    std::vector<unsigned> found(blocks);
    CHECK(cudaMalloc(&device, blocks * sizeof(unsigned)));
    CHECK(cudaMemset(device, 0, blocks * sizeof(unsigned)));
    for (int i = 0; i < 10; i++) {
        count<<<blocks, 32>>>(device);
    }
    CHECK(cudaMemcpy(found.data(), device, blocks * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    double sum = 0;
    for (unsigned each : found) {
        sum += each;
    }
    return sum;
}

static double mallocs(bool frees)
{
    unsigned state = 1;
    std::vector<void *> taken(NR_MALLOCS);
    double sum = 0;
    CHECK(cudaFree(NULL));
    const double begun_ms = now_ms();
    for (void *&each : taken) {
        state = state * 1664525u + 1013904223u;
        const size_t bytes = (64u << (state >> 28) % 15) - (state >> 8) % 32;
        CHECK(cudaMalloc(&each, bytes));
        sum += bytes;
    }
    const double taken_ms = now_ms();
    for (int i = 0; frees && i < NR_MALLOCS; i++) {
        CHECK(cudaFree(taken[(size_t)i * 7919 % NR_MALLOCS]));
    }
    fprintf(stderr, "mallocs ms %.1f frees ms %.1f\n", taken_ms - begun_ms, now_ms() - taken_ms);
    return sum;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    double sum;
    if (!strcmp(what, "vectors")) {
        sum = vectors();
    } else if (!strcmp(what, "grid")) {
        sum = grid();
    } else if (!strcmp(what, "mallocs") || !strcmp(what, "kept")) {
        sum = mallocs(what[0] == 'm');
    } else {
        fprintf(stderr, "first: vectors, grid, mallocs or kept\n");
        return 2;
    }
    printf("sum %.0f\n", sum);
    return 0;
}
