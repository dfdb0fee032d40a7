/*
 * A prefix sum in one pass: each block publishes the sum of its part, then looks back over the blocks before it until
 * it finds one whose prefix is known. Blocks wait for blocks of the same ordinary launch, and take a lock to count
 * themselves.
 */
#include <vector>

#include "check.h"

constexpr int nr_threads = 128, nr_blocks = 700, nr = nr_threads * nr_blocks;
constexpr unsigned long long sum_known = 1ull << 62, prefix_known = 2ull << 62, value_bits = sum_known - 1;

__device__ unsigned int nr_begun;
__device__ int lock, nr_finished;

__device__ unsigned long long exclusive_prefix(volatile unsigned long long *states, int block)
{
    unsigned long long prefix = 0;

    for (int before = block - 1; before >= 0; before--) {
        unsigned long long state;
        do {
            state = states[before];
        } while (!(state & ~value_bits));
        prefix += state & value_bits;
        if (state & prefix_known) {
            break;
        }
    }
    return prefix;
}

__global__ void scan(const int *in, unsigned long long *out, volatile unsigned long long *states)
{
    __shared__ unsigned long long sums[nr_threads], before;
    __shared__ int block;

    if (threadIdx.x == 0) {
        block = atomicAdd(&nr_begun, 1);
    }
    __syncthreads();
    sums[threadIdx.x] = in[block * nr_threads + threadIdx.x];
    for (int distance = 1; distance < nr_threads; distance *= 2) {
        __syncthreads();
        unsigned long long other = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
    }
    if (threadIdx.x == nr_threads - 1) {
        unsigned long long sum = sums[threadIdx.x];
        states[block] = (block ? sum_known : prefix_known) | sum;
        __threadfence();
        before = exclusive_prefix(states, block);
        states[block] = prefix_known | (before + sum);
    }
    __syncthreads();
    out[block * nr_threads + threadIdx.x] = before + sums[threadIdx.x];
    if (threadIdx.x % 32 == 5) {
        while (atomicCAS(&lock, 0, 1))
            ;
        __threadfence();
        *(volatile int *)&nr_finished = *(volatile int *)&nr_finished + 1;
        __threadfence();
        atomicExch(&lock, 0);
    }
}

int main()
{
    std::vector<int> host(nr);
    std::vector<unsigned long long> got(nr);
    int *in, nr_wrong = 0, finished;
    unsigned long long *out, *states, sum = 0;
    for (int i = 0; i < nr; i++) {
        host[i] = (i * 7919u) % 1000;
    }
    CHECK(cudaMalloc(&in, nr * sizeof(int)));
    CHECK(cudaMalloc(&out, nr * sizeof(*out)));
    CHECK(cudaMalloc(&states, nr_blocks * sizeof(*states)));
    CHECK(cudaMemset(states, 0, nr_blocks * sizeof(*states)));
    CHECK(cudaMemcpy(in, host.data(), nr * sizeof(int), cudaMemcpyHostToDevice));
    scan<<<nr_blocks, nr_threads>>>(in, out, states);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(got.data(), out, nr * sizeof(*out), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpyFromSymbol(&finished, nr_finished, sizeof(finished)));
    for (int i = 0; i < nr; i++) {
        sum += host[i];
        nr_wrong += got[i] != sum;
    }
    std::printf("sum %llu of %d, %d wrong, %d warps\n", sum, nr, nr_wrong, finished);
    return verdict(nr_wrong == 0 && finished == nr_blocks * nr_threads / 32);
}
