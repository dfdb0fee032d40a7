/*
 * What the occupancy calculator says of a kernel, against what must hold on any device. Numbers are the device's, so
 * none is fixed.
 */
#include "check.h"

__global__ void light(int *out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
}

__global__ void with_shared_memory(int *out)
{
    extern __shared__ int scratch[];
    scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}

int main()
{
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    bool is_right = true;
    int nr_before = 1 << 20;
    for (int nr_threads = 64; nr_threads <= 1024; nr_threads *= 2) {
        int nr_blocks = 0;
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_blocks, light, nr_threads, 0));
        std::printf("%d threads: %d blocks per multiprocessor\n", nr_threads, nr_blocks);
        is_right = is_right && nr_blocks >= 1 && nr_blocks <= nr_before &&
                   nr_blocks * nr_threads <= properties.maxThreadsPerMultiProcessor;
        nr_before = nr_blocks;
    }
    int nr_without = 0, nr_with = 0, least_grid = 0, best_block = 0;
    size_t half = properties.sharedMemPerBlock / 2 + 1024;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_without, with_shared_memory, 64, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_with, with_shared_memory, 64, half));
    CHECK(cudaOccupancyMaxPotentialBlockSize(&least_grid, &best_block, light, 0, 0));
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, with_shared_memory));
    std::printf("%zu bytes of shared memory: %d blocks, without: %d\n", half, nr_with, nr_without);
    std::printf("best block %d threads, grid of %d or more\n", best_block, least_grid);
    is_right = is_right && nr_with >= 1 && nr_with <= nr_without && best_block >= 32 && least_grid >= 1 &&
               best_block <= attributes.maxThreadsPerBlock && attributes.sharedSizeBytes == 0;
    int *device, last = -1;
    CHECK(cudaMalloc(&device, best_block * sizeof(int)));
    with_shared_memory<<<1, best_block, best_block * sizeof(int)>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&last, device, sizeof(last), cudaMemcpyDeviceToHost));
    return verdict(is_right && last == best_block - 1);
}
