/* Computes once for each line of its input, and is idle in between; its memory, so many MiB, has to be as it was. */
#include <cstdlib>
#include <iostream>
#include <string>

#include "check.h"

__global__ void add(unsigned *values, size_t nr, unsigned what)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        values[i] += what + (unsigned)i;
    }
}

__global__ void sum(const unsigned *values, size_t nr, unsigned long long *out)
{
    unsigned long long own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        own += values[i];
    }
    atomicAdd(out, own);
}

int main(int argc, char **argv)
{
    const size_t nr = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) << 18;
    unsigned *values;
    unsigned long long *out, total = 0, expected = 0;
    unsigned nr_lines = 0;
    bool is_right = true;
    CHECK(cudaMalloc(&values, nr * sizeof(*values)));
    CHECK(cudaMalloc(&out, sizeof(*out)));
    CHECK(cudaMemset(values, 0, nr * sizeof(*values)));
    std::printf("ready\n");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        nr_lines++;
        add<<<8, 256>>>(values, nr, nr_lines);
        CHECK(cudaMemset(out, 0, sizeof(*out)));
        sum<<<8, 256>>>(values, nr, out);
        CHECK(cudaMemcpy(&total, out, sizeof(total), cudaMemcpyDeviceToHost));
        expected = 0;
        for (size_t i = 0; i < nr; i++) {
            expected += (unsigned)(nr_lines * (nr_lines + 1) / 2 + nr_lines * i);
        }
        is_right = is_right && total == expected;
        std::printf("%u: %llu\n", nr_lines, total);
        std::fflush(stdout);
    }
    return verdict(is_right);
}
