/* Parts of a warp: active masks, coalesced groups, partial masks, tiles; barriers that count; lanes that leave. */
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "check.cuh"

namespace cg = cooperative_groups;

__device__ int count_once(int *counter)
{
    unsigned mask = __activemask();
    int lane = threadIdx.x & 31, leader = __ffs(mask) - 1, base = 0;

    if (lane == leader) {
        base = atomicAdd(counter, __popc(mask));
    }
    base = __shfl_sync(mask, base, leader);
    return base + __popc(mask & ((1u << lane) - 1));
}

/* Every thread takes a number of its own, wherever it stands. */
__global__ void aggregated(int *out, int *counters)
{
    int number;

    if (threadIdx.x % 3 == 0) {
        number = count_once(counters);
    } else if (threadIdx.x % 5 == 0) {
        number = count_once(counters + 1);
    } else {
        number = count_once(counters + 2);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = number;
}

__global__ void active(unsigned *out)
{
    unsigned *row = out + 4 * threadIdx.x;

    row[0] = __activemask();
    if (threadIdx.x & 1) {
        row[1] = __activemask();
    } else {
        row[1] = __activemask();
    }
    for (int i = 0; i < threadIdx.x % 4; i++) {
        row[2] = __activemask();
    }
    if (threadIdx.x < 40) {
        return;
    }
    row[3] = __activemask();
}

__global__ void coalesced(int *out)
{
    int *row = out + 4 * threadIdx.x;

    if (threadIdx.x % 4 < 3) {
        cg::coalesced_group group = cg::coalesced_threads();
        int first = group.shfl(threadIdx.x, 0);

        group.sync();
        row[0] = first;
        row[1] = group.size();
        row[2] = group.thread_rank();
        row[3] = __popc(group.ballot(threadIdx.x & 1));
    }
}

__global__ void tiles(int *out)
{
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::this_thread_block());
    int sum = threadIdx.x;

    for (int offset = 4; offset; offset /= 2) {
        sum += tile.shfl_xor(sum, offset);
    }
    out[threadIdx.x] = sum;
    if (tile.meta_group_rank() % 2) {
        out[threadIdx.x] += tile.any(threadIdx.x == 12) ? 1000 : 0;
    }
}

/* Tiles of two warps meet and add through memory that cooperative groups find for themselves. */
__global__ void wide_tiles(int *out)
{
    __shared__ cg::block_tile_memory<256> memory;
    cg::thread_block block = cg::this_thread_block(memory);
    cg::thread_block_tile<64, cg::thread_block> tile = cg::tiled_partition<64>(block);
    int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());

    tile.sync();
    out[threadIdx.x] = tile.shfl(sum, 40) + tile.any(threadIdx.x == 70);
}

/* Nested branches, each with the mask of those that take it. */
__global__ void nested(int *out)
{
    int lane = threadIdx.x & 31, value = threadIdx.x;

    if (lane & 1) {
        value = __shfl_xor_sync(0xaaaaaaaa, value, 2);
        if (lane & 2) {
            unsigned quarter = __ballot_sync(0x88888888, lane > 7);
            value += 100 * __shfl_sync(0x88888888, value, 31) + __popc(quarter);
            __syncwarp(0x88888888);
        } else {
            value = -value;
        }
    } else if (lane & 4) {
        value = 10000 * __match_any_sync(0x50505050, lane / 16);
    }
    __syncwarp();
    out[threadIdx.x] = value + __shfl_sync(~0u, value, 0);
}

/* Lanes leave one after another; those that stay meet under masks of who is left. */
__global__ void leaving_lanes(int *out)
{
    int lane = threadIdx.x & 31;
    unsigned mask = ~0u;

    for (int step = 0; step < 4; step++) {
        mask = __ballot_sync(mask, lane >= 8 * step);
        if (lane < 8 * step) {
            return;
        }
        out[4 * threadIdx.x + step] = __popc(mask);
    }
}

/* Warp 0 makes, warp 1 takes: each arrives where the other waits. Warp 2 has left. */
__global__ void producer(int *out)
{
    __shared__ int cell[32];
    int lane = threadIdx.x & 31;

    if (threadIdx.x >= 64) {
        return;
    }
    for (int round = 0; round < 5; round++) {
        if (threadIdx.x < 32) {
            if (round) {
                asm volatile("barrier.cta.sync.aligned 2, 64;" ::: "memory");
            }
            cell[lane] = 100 * round + lane;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[32 * round + lane] = cell[31 - lane];
            if (round < 4) {
                asm volatile("barrier.cta.arrive 2, 64;" ::: "memory");
            }
        }
    }
}

/* The first warp arrives and is gone before the second comes. */
__global__ void arrive_and_leave(int *out)
{
    if (threadIdx.x < 32) {
        out[threadIdx.x] = threadIdx.x;
        asm volatile("barrier.arrive 5, 96;" ::: "memory");
        return;
    }
    asm volatile("barrier.sync 5, 96;" ::: "memory");
    out[threadIdx.x] = out[threadIdx.x & 31] + 1;
}

__global__ void counted_reductions(int *out)
{
    int count = 0, all = 0, any = 0, half = threadIdx.x / 64;

    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %3, 0; setp.ne.u32 q, %4, 0;\n"
                 "barrier.cta.red.popc.u32 %0, %5, 64, p; .reg .pred a, o; barrier.cta.red.and.pred a, %5, 64, q;\n"
                 "bar.red.or.pred o, %5, 64, p; selp.u32 %1, 1, 0, a; selp.u32 %2, 1, 0, o; }"
                 : "=r"(count), "=r"(all), "=r"(any)
                 : "r"((int)(threadIdx.x % 3 == 0)), "r"((int)(threadIdx.x < 64)), "r"(half + 3)
                 : "memory");
    out[threadIdx.x] = count + 100 * all + 1000 * any;
}

/* Some threads are gone before the others reach the barrier, some of them lanes of the same warp. */
__global__ void gone_before(int *out)
{
    __shared__ int total;

    if (threadIdx.x == 70) {
        total = 0;
    }
    __syncthreads();
    if (threadIdx.x % 4 == 2 || threadIdx.x / 32 == 1) {
        return;
    }
    atomicAdd(&total, 1);
    asm volatile("bar.sync 7, 96;" ::: "memory");
    out[threadIdx.x] = total;
}

__global__ void warp_reductions(int *out)
{
    int lane = threadIdx.x & 31;
    unsigned mask = lane < 12 ? 0xfffu : ~0xfffu;

    out[4 * threadIdx.x] = __popc(__match_any_sync(mask, lane % 3));
    int is_same;
    out[4 * threadIdx.x + 1] = __popc(__match_all_sync(mask, lane / 12 ? 5 : lane, &is_same)) + 100 * is_same;
    out[4 * threadIdx.x + 2] = __all_sync(mask, lane < 12) + 2 * __any_sync(mask, lane == 31);
    out[4 * threadIdx.x + 3] = __shfl_up_sync(mask, lane, 2, 4);
}

static void check_aggregated()
{
    const int nr = 3 * 70;
    int *out = managed<int>(nr), *counters = managed<int>(3), nr_of[3] = {};
    bool is_taken[3][nr] = {};

    aggregated<<<3, 70>>>(out, counters);
    const int *got = fetched(out, nr), *counts = fetched(counters, 3);
    for (int i = 0; i < nr; i++) {
        int thread = i % 70, kind = thread % 3 == 0 ? 0 : thread % 5 == 0 ? 1 : 2;
        bool is_good = got[i] >= 0 && got[i] < nr && !is_taken[kind][got[i]];

        expect("own number", i, is_good, 1);
        if (is_good) {
            is_taken[kind][got[i]] = true;
        }
        nr_of[kind]++;
    }
    for (int kind = 0; kind < 3; kind++) {
        expect("counter", kind, counts[kind], nr_of[kind]);
    }
}

static void check_active()
{
    unsigned *out = managed<unsigned>(4 * 64);

    active<<<1, 64>>>(out);
    const unsigned *got = fetched(out, 4 * 64);
    for (int i = 0; i < 64; i++) {
        expect("all", i, got[4 * i], ~0u);
        expect("half", i, got[4 * i + 1] & (i & 1 ? 0x55555555 : 0xaaaaaaaa), 0);
        expect("half has itself", i, got[4 * i + 1] >> i % 32 & 1, 1);
        expect("loop", i, got[4 * i + 2] >> i % 32 & 1, i % 4 > 0);
        expect("rest", i, got[4 * i + 3], i < 40 ? 0 : 0xffffff00);
    }
}

static void check_groups()
{
    int *out = managed<int>(4 * 64);

    coalesced<<<1, 64>>>(out);
    const int *got = fetched(out, 4 * 64);
    for (int i = 0; i < 64; i++) {
        bool is_in = i % 4 < 3;

        expect("first", i, got[4 * i], is_in ? i & ~31 : 0);
        expect("size", i, got[4 * i + 1], is_in ? 24 : 0);
        expect("rank", i, got[4 * i + 2], is_in ? i % 32 / 4 * 3 + i % 4 : 0);
        expect("odd", i, got[4 * i + 3], is_in ? 8 : 0);
    }
    tiles<<<1, 64>>>(out);
    got = fetched(out, 64);
    for (int i = 0; i < 64; i++) {
        expect("tile", i, got[i], 8 * (i & ~7) + 28 + (i / 8 == 1 ? 1000 : 0));
    }
}

static void check_wide_tiles()
{
    int *out = managed<int>(256);

    wide_tiles<<<2, 256>>>(out);
    const int *got = fetched(out, 256);
    for (int i = 0; i < 256; i++) {
        expect("wide tile", i, got[i], 64 * (i & ~63) + 63 * 32 + (i / 64 == 1));
    }
}

static int nested_value(int thread)
{
    int lane = thread & 31, base = thread & ~31;

    if (lane & 1) {
        return lane & 2 ? (thread ^ 2) + 100 * (base + 29) + 6 : -(thread ^ 2);
    }
    return lane & 4 ? 10000 * (lane < 16 ? 0x5050 : 0x50500000) : thread;
}

static void check_divergence()
{
    int *out = managed<int>(4 * 64);

    nested<<<1, 64>>>(out);
    const int *got = fetched(out, 64);
    for (int i = 0; i < 64; i++) {
        expect("nested", i, got[i], (int)((unsigned)nested_value(i) + nested_value(i & ~31)));
    }
    OK(cudaMemset(out, 0, 4 * 64 * sizeof(int)));
    leaving_lanes<<<1, 64>>>(out);
    got = fetched(out, 4 * 64);
    for (int i = 0; i < 4 * 64; i++) {
        expect("leaving", i, got[i], i / 4 % 32 >= 8 * (i % 4) ? 32 - 8 * (i % 4) : 0);
    }
    warp_reductions<<<1, 64>>>(out);
    got = fetched(out, 4 * 64);
    for (int i = 0; i < 64; i++) {
        int lane = i % 32;

        expect("match any", i, got[4 * i], lane < 12 ? 4 : lane % 3 == 2 ? 6 : 7);
        expect("match all", i, got[4 * i + 1], lane < 12 ? 0 : 120);
        expect("vote", i, got[4 * i + 2], lane < 12 ? 1 : 2);
        expect("shfl up", i, got[4 * i + 3], lane % 4 < 2 ? lane : lane - 2);
    }
}

static void check_barriers()
{
    int *out = managed<int>(256);

    producer<<<1, 96>>>(out);
    const int *got = fetched(out, 160);
    for (int i = 0; i < 160; i++) {
        expect("producer", i, got[i], i / 32 * 100 + 31 - i % 32);
    }
    arrive_and_leave<<<1, 96>>>(out);
    got = fetched(out, 96);
    for (int i = 0; i < 96; i++) {
        expect("arrive and leave", i, got[i], i % 32 + (i >= 32));
    }
    counted_reductions<<<1, 128>>>(out);
    got = fetched(out, 128);
    for (int i = 0; i < 128; i++) {
        expect("reduction", i, got[i], (i < 64 ? 22 : 21) + (i < 64 ? 100 : 0) + 1000);
    }
    OK(cudaMemset(out, 0, 128 * sizeof(int)));
    gone_before<<<1, 128>>>(out);
    got = fetched(out, 128);
    for (int i = 0; i < 128; i++) {
        expect("gone before", i, got[i], i % 4 == 2 || i / 32 == 1 ? 0 : 72);
    }
}

int main()
{
    check_aggregated();
    check_active();
    check_groups();
    check_wide_tiles();
    check_divergence();
    check_barriers();
    return finish();
}
