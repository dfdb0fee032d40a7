/*
 * The first program anybody runs: two vectors, pageable copies, one launch. Usage: vector_add [NR_ELEMENTS
 * [NR_REPEATS]]
 */
#include <vector>

#include "check.h"

__global__ void vector_add(const float *a, const float *b, float *sum, int nr)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        sum[i] = a[i] + b[i];
    }
}

int main(int argc, char **argv)
{
    int nr = argc > 1 ? std::atoi(argv[1]) : 50000;
    int nr_repeats = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<float> a(nr), b(nr), sum(nr, -1.0f);
    for (int i = 0; i < nr; i++) {
        a[i] = 0.5f * i;
        b[i] = 1.0f - 0.25f * i;
    }
    float *device_a, *device_b, *device_sum;
    size_t bytes = nr * sizeof(float);
    CHECK(cudaMalloc(&device_a, bytes));
    CHECK(cudaMalloc(&device_b, bytes));
    CHECK(cudaMalloc(&device_sum, bytes));
    CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));
    int nr_threads = 256;
    int nr_blocks = (nr + nr_threads - 1) / nr_threads;
    for (int repeat = 0; repeat < nr_repeats; repeat++) {
        vector_add<<<nr_blocks, nr_threads>>>(device_a, device_b, device_sum, nr);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaMemcpy(sum.data(), device_sum, bytes, cudaMemcpyDeviceToHost));
    int nr_wrong = 0;
    for (int i = 0; i < nr; i++) {
        nr_wrong += sum[i] != a[i] + b[i];
    }
    std::printf("%d elements in %d blocks of %d threads, %d wrong\n", nr, nr_blocks, nr_threads, nr_wrong);
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_sum));
    return verdict(nr_wrong == 0);
}
