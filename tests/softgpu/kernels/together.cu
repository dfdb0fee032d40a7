/* Threads that wait for each other: barriers, votes, shuffles, match, reductions, divergence and early exits. */
#include "check.cuh"

#define WARPS   3
#define THREADS (32 * WARPS)

__global__ void shuffles(int *out)
{
    int lane = threadIdx.x & 31, value = 100 * threadIdx.x;
    int *row = out + 6 * threadIdx.x;

    row[0] = __shfl_sync(~0u, value, 5);
    row[1] = __shfl_up_sync(~0u, value, 3);
    row[2] = __shfl_down_sync(~0u, value, 7, 16);
    row[3] = __shfl_xor_sync(~0u, value, 9);
    row[4] = __shfl_sync(~0u, value, lane + 1, 8);
    row[5] = (int)(__shfl_down_sync(~0u, 1ll << 40 | value, 1) >> 40);
}

__global__ void votes(unsigned *out)
{
    int lane = threadIdx.x & 31;
    unsigned *row = out + 8 * threadIdx.x;

    row[0] = __ballot_sync(~0u, lane % 3 == 0);
    row[1] = __any_sync(~0u, lane == 77) | __any_sync(~0u, lane == 3) << 1;
    row[2] = __all_sync(~0u, lane < 32) | __all_sync(~0u, lane < 31) << 1;
    row[3] = __match_any_sync(~0u, lane / 5);
    int same;
    row[4] = __match_all_sync(~0u, 9ull << 40, &same);
    row[5] = same;
    row[6] = __match_all_sync(~0u, lane, &same);
    if (lane & 1) {
        row[7] = __ballot_sync(0xaaaaaaaa, lane > 16);
    } else {
        row[7] = __ballot_sync(0x55555555, lane > 20);
    }
}

__global__ void barriers(int *out)
{
    __shared__ int cells[THREADS];

    cells[threadIdx.x] = threadIdx.x;
    for (int step = 1; step < 5; step++) {
        __syncthreads();
        int next = cells[(threadIdx.x + step) % THREADS];
        __syncthreads();
        cells[threadIdx.x] += next;
    }
    __syncthreads();
    out[4 * threadIdx.x] = cells[THREADS - 1 - threadIdx.x];
    out[4 * threadIdx.x + 1] = __syncthreads_count(threadIdx.x % 7 == 0);
    out[4 * threadIdx.x + 2] = __syncthreads_and(threadIdx.x < THREADS) | __syncthreads_and(threadIdx.x) << 1;
    out[4 * threadIdx.x + 3] = __syncthreads_or(threadIdx.x == 50) | __syncthreads_or(threadIdx.x > THREADS) << 1;
}

__global__ void leavers(int *out)
{
    __shared__ int total;

    if (threadIdx.x == 0) {
        total = 0;
    }
    __syncthreads();
    if (threadIdx.x % 3 == 1) {
        return;
    }
    atomicAdd(&total, threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = total;
}

__global__ void named_barriers(int *out)
{
    __shared__ int halves[2];
    int warp = threadIdx.x / 32;

    if (threadIdx.x < 2) {
        halves[threadIdx.x] = 0;
    }
    __syncthreads();
    if (warp < 2) {
        atomicAdd(&halves[0], 1);
        asm volatile("bar.sync 3, 64;" ::: "memory");
        out[threadIdx.x] = halves[0];
    } else {
        atomicAdd(&halves[1], 1);
        asm volatile("bar.sync 4, 32;" ::: "memory");
        out[threadIdx.x] = halves[1];
    }
}

/* Eight lanes sum as if they were the whole warp: the lanes that are away have to count as nothing. */
__global__ void partial_sum(int *out)
{
    int value = threadIdx.x + 1;

    if (threadIdx.x >= 8) {
        return;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xff, value, offset);
    }
    if (threadIdx.x == 0) {
        *out = value;
    }
}

__global__ void block_sum(const float *in, float *out)
{
    extern __shared__ float sums[];
    float value = in[blockIdx.x * blockDim.x + threadIdx.x];

    for (int offset = 16; offset; offset /= 2) {
        value += __shfl_down_sync(~0u, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < blockDim.x / 32; warp++) {
            value += sums[warp];
        }
        atomicAdd(out, value);
    }
}

static void check_shuffles(const int *rows)
{
    for (int i = 0; i < THREADS; i++) {
        int base = i & ~31, lane = i & 31;
        const int *row = rows + 6 * i;

        expect("shfl idx", i, row[0], 100 * (base + 5));
        expect("shfl up", i, row[1], 100 * (lane < 3 ? i : i - 3));
        expect("shfl down", i, row[2], 100 * (lane % 16 + 7 > 15 ? i : i + 7));
        expect("shfl bfly", i, row[3], 100 * (base + (lane ^ 9)));
        expect("shfl idx 8", i, row[4], 100 * (base + (lane & ~7) + (lane + 1) % 8));
        expect("shfl 64", i, row[5], 1);
    }
}

static void check_votes(const unsigned *rows)
{
    for (int i = 0; i < THREADS; i++) {
        int lane = i & 31;
        const unsigned *row = rows + 8 * i;

        expect("ballot", i, row[0], 0x49249249);
        expect("any", i, row[1], 2);
        expect("all", i, row[2], 1);
        expect("match any", i, row[3], (double)(unsigned)(31ull << (lane / 5 * 5)));
        expect("match all", i, row[4], 0xffffffff);
        expect("match all says", i, row[5], 1);
        expect("match none", i, row[6], 0);
        expect("half ballot", i, row[7], lane & 1 ? 0xaaaa0000 & ~0u << 17 : 0x55400000);
    }
}

int main()
{
    int *out = managed<int>(8 * THREADS);

    shuffles<<<1, THREADS>>>(out);
    check_shuffles(fetched(out, 6 * THREADS));
    votes<<<1, THREADS>>>((unsigned *)out);
    check_votes((unsigned *)fetched(out, 8 * THREADS));

    barriers<<<2, THREADS>>>(out);
    int *rows = fetched(out, 4 * THREADS), cells[THREADS], next[THREADS];
    for (int i = 0; i < THREADS; i++) {
        cells[i] = i;
    }
    for (int step = 1; step < 5; step++) {
        for (int i = 0; i < THREADS; i++) {
            next[i] = cells[i] + cells[(i + step) % THREADS];
        }
        for (int i = 0; i < THREADS; i++) {
            cells[i] = next[i];
        }
    }
    for (int i = 0; i < THREADS; i++) {
        expect("barrier", i, rows[4 * i], cells[THREADS - 1 - i]);
        expect("count", i, rows[4 * i + 1], (THREADS + 6) / 7);
        expect("and", i, rows[4 * i + 2], 1);
        expect("or", i, rows[4 * i + 3], 1);
    }

    OK(cudaMemset(out, 0xff, THREADS * sizeof(int)));
    leavers<<<1, THREADS>>>(out);
    rows = fetched(out, THREADS);
    int total = 0;
    for (int i = 0; i < THREADS; i++) {
        total += i % 3 == 1 ? 0 : i;
    }
    for (int i = 0; i < THREADS; i++) {
        expect("leavers", i, rows[i], i % 3 == 1 ? -1 : total);
    }

    named_barriers<<<1, THREADS>>>(out);
    rows = fetched(out, THREADS);
    for (int i = 0; i < THREADS; i++) {
        expect("named barrier", i, rows[i], i < 64 ? 64 : 32);
    }

    float *in = managed<float>(8 * 256), *sum = managed<float>(1), host[8 * 256], wanted = 0;
    for (int i = 0; i < 8 * 256; i++) {
        wanted += host[i] = i % 17;
    }
    OK(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
    block_sum<<<8, 256, 8 * sizeof(float)>>>(in, sum);
    expect("block sum", 0, *fetched(sum, 1), wanted);

    partial_sum<<<1, 32>>>(out);
    expect("partial sum", 0, *fetched(out, 1), 36);
    return finish();
}
