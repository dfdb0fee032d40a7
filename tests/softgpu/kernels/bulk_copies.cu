/*
 * What libraries for capability 9.0 make of barriers and copies, in their own words: barriers that count bytes, bulk
 * copies, an elected lane. As assembly, since a compiler for less has no functions for it; a device that lacks it
 * refuses the PTX.
 */
#include <cstdint>

#include "check.cuh"

constexpr int nr_threads = 96, nr_stages = 4, nr_bytes = nr_threads * (int)sizeof(int);

__device__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ void wait(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra AGAIN; }" ::"r"(
            barrier),
        "r"(parity)
        : "memory");
}

/* Stage by stage one thread copies, and all wait for its bytes. */
__global__ void staged(const int *in, int *out)
{
    __shared__ alignas(16) int cells[2][nr_threads];
    __shared__ alignas(8) uint64_t arrived[2];
    int sum = 0;

    if (threadIdx.x < 2) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[threadIdx.x])) : "memory");
    }
    __syncthreads();
    for (int stage = 0; stage < nr_stages; stage++) {
        uint32_t barrier = shared_address(&arrived[stage % 2]), to = shared_address(cells[stage % 2]);
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(nr_bytes)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                "l"(in + stage * nr_threads), "r"(nr_bytes), "r"(barrier)
                : "memory");
        }
        wait(barrier, stage / 2 % 2);
        sum += cells[stage % 2][nr_threads - 1 - threadIdx.x];
        __syncthreads();
    }
    cells[0][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + blockIdx.x * nr_threads),
                     "r"(shared_address(cells[0])), "r"(nr_bytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

/* Bytes that come before they are expected, and in parts; states before and after. */
__global__ void counted(unsigned *out)
{
    __shared__ alignas(8) uint64_t barrier;
    uint32_t at = shared_address(&barrier);
    unsigned over[4];
    int nr = 0;

#define OVER(PARITY)                                                                                                   \
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"      \
                 : "=r"(over[nr++])                                                                                    \
                 : "r"(at), "r"(PARITY)                                                                                \
                 : "memory")
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(at) : "memory");
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 96;" ::"r"(at) : "memory");
    OVER(0);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;" ::"r"(at) : "memory");
    OVER(0);
    OVER(1);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 2;" ::"r"(at) : "memory");
    OVER(1);
    for (int i = 0; i < nr; i++) {
        out[i] = over[i];
    }
}

__global__ void elected(unsigned *out)
{
    unsigned leader, is_leader;

    if (threadIdx.x % 32 >= 5) {
        asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p; }"
                     : "=r"(leader), "=r"(is_leader)
                     : "r"(0xffffffe0));
        out[threadIdx.x] = leader + 100 * is_leader;
    }
}

int main()
{
    int host[nr_threads * nr_stages], *in = managed<int>(nr_threads * nr_stages), *out = managed<int>(2 * nr_threads);
    unsigned *words = managed<unsigned>(64);

    for (int i = 0; i < nr_threads * nr_stages; i++) {
        host[i] = i * i;
    }
    OK(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
    staged<<<2, nr_threads>>>(in, out);
    int *sums = fetched(out, 2 * nr_threads);
    for (int i = 0; i < 2 * nr_threads; i++) {
        int wanted = 0;
        for (int stage = 0; stage < nr_stages; stage++) {
            wanted += host[stage * nr_threads + nr_threads - 1 - i % nr_threads];
        }
        expect("staged", i, sums[i], wanted);
    }
    counted<<<1, 1>>>(words);
    unsigned *over = fetched(words, 4), wanted[] = {0, 1, 0, 1};
    for (int i = 0; i < 4; i++) {
        expect("counted", i, over[i], wanted[i]);
    }
    elected<<<1, 64>>>(words);
    unsigned *leaders = fetched(words, 64);
    for (int i = 0; i < 64; i++) {
        expect("elected", i, leaders[i], i % 32 < 5 ? (i < 4 ? wanted[i] : 0) : i % 32 == 5 ? 105 : 5);
    }
    return finish();
}
