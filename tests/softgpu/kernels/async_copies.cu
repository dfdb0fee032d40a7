/* Copies into shared memory that a barrier object waits for, as libcu++ writes them. */
#include <cooperative_groups.h>
#include <cuda/barrier>

#include "check.cuh"

namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int nr_threads = 96, nr_stages = 5;

/* Stage by stage: the block's part of `in` comes into shared memory, each thread adds what lies opposite. */
__global__ void staged(const int *in, int *out)
{
    __shared__ alignas(16) int cells[2][nr_threads];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier arrived[2];
    cg::thread_block block = cg::this_thread_block();
    int sum = 0;

    if (block.thread_rank() < 2) {
        init(&arrived[block.thread_rank()], nr_threads);
    }
    block.sync();
    for (int stage = 0; stage < nr_stages; stage++) {
        int *to = cells[stage % 2];
        cuda::memcpy_async(to + threadIdx.x, in + stage * nr_threads + threadIdx.x, sizeof(int), arrived[stage % 2]);
        arrived[stage % 2].arrive_and_wait();
        sum += to[nr_threads - 1 - threadIdx.x];
    }
    out[blockIdx.x * nr_threads + threadIdx.x] = sum;
}

/* The first warp works on while the others wait for its arrival. */
__global__ void split(int *out)
{
    __shared__ barrier ready;
    __shared__ int made;

    if (threadIdx.x == 0) {
        init(&ready, nr_threads);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            made = 42;
        }
        barrier::arrival_token token = ready.arrive();
        out[threadIdx.x] = threadIdx.x;
        ready.wait(std::move(token));
    } else {
        ready.arrive_and_wait();
        out[threadIdx.x] = made;
    }
}

int main()
{
    int *in = managed<int>(nr_threads * nr_stages), *out = managed<int>(2 * nr_threads), host[nr_threads * nr_stages];

    for (int i = 0; i < nr_threads * nr_stages; i++) {
        host[i] = i * i % 101;
    }
    OK(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
    staged<<<2, nr_threads>>>(in, out);
    const int *got = fetched(out, 2 * nr_threads);
    for (int i = 0; i < 2 * nr_threads; i++) {
        int sum = 0;
        for (int stage = 0; stage < nr_stages; stage++) {
            sum += host[stage * nr_threads + nr_threads - 1 - i % nr_threads];
        }
        expect("staged", i, got[i], sum);
    }
    split<<<1, nr_threads>>>(out);
    got = fetched(out, nr_threads);
    for (int i = 0; i < nr_threads; i++) {
        expect("split", i, got[i], i < 32 ? i : 42);
    }
    return finish();
}
