/* Threads and blocks that wait for each other by reading memory in a loop. */
#include <cooperative_groups.h>

#include "check.cuh"

namespace cg = cooperative_groups;

__global__ void flag(int *out)
{
    __shared__ volatile int ready;

    if (threadIdx.x == 0) {
        ready = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        while (!ready)
            ;
        out[blockIdx.x] = ready;
    }
    if (threadIdx.x == 33) {
        ready = 7;
    }
}

/* out[0] counts, out[1] is the lock; lanes of one warp take it in turn. */
__global__ void spin_lock(int *out)
{
    while (atomicCAS(out + 1, 0, 1) != 0)
        ;
    volatile int *count = out;
    *count = *count + 1;
    __threadfence();
    atomicExch(out + 1, 0);
}

__global__ void try_lock(int *out)
{
    for (bool is_done = false; !is_done;) {
        if (atomicCAS(out + 1, 0, 1) == 0) {
            out[0]++;
            __threadfence();
            atomicExch(out + 1, 0);
            is_done = true;
        }
    }
}

__global__ void ticket_lock(int *out)
{
    int ticket = atomicAdd(out + 1, 1);

    while (atomicAdd(out + 2, 0) != ticket) {
        __nanosleep(10);
    }
    out[0] += ticket;
    __threadfence();
    atomicAdd(out + 2, 1);
}

/* Block by block, each waits for the one before. */
__global__ void look_back(int *out)
{
    volatile int *cells = out;
    int before = 0;

    if (threadIdx.x == 0) {
        if (blockIdx.x) {
            while (!(before = cells[blockIdx.x - 1]))
                ;
        }
        cells[blockIdx.x] = before + 1;
    }
}

/* Each waits for the one behind: all must be resident. */
__global__ void look_ahead(int *out)
{
    volatile int *cells = out;
    int behind = 0;

    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x) {
            while (!(behind = cells[blockIdx.x + 1])) {
                __nanosleep(20);
            }
        }
        cells[blockIdx.x] = behind + 1;
    }
}

__global__ void acquire_turns(int *out)
{
    if (threadIdx.x == 0) {
        unsigned turn;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(turn) : "l"(out + 1) : "memory");
        } while (turn != blockIdx.x);
        out[0] = 2 * out[0] % 1000 + blockIdx.x;
        asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(out + 1), "r"(blockIdx.x + 1) : "memory");
    }
    __syncthreads();
}

__device__ __noinline__ int polled(const int *cell)
{
    return *(volatile const int *)cell;
}

__global__ void by_call(int *out)
{
    if (threadIdx.x == 0) {
        while (!polled(out + 1))
            ;
        out[0] = 1;
    } else if (threadIdx.x == 40) {
        atomicExch(out + 1, 1);
    }
}

__global__ void by_fence(int *out)
{
    if (threadIdx.x == 0) {
        while (out[1] == 0) {
            __threadfence();
        }
        out[0] = 1;
    } else if (threadIdx.x == 40) {
        out[1] = 1;
    }
}

__global__ void by_vote(int *out)
{
    int lane = threadIdx.x & 31;

    if (threadIdx.x < 32) {
        while (!__any_sync(~0u, lane == 3 && *(volatile int *)(out + 1)))
            ;
        if (lane == 0) {
            out[0] = 1;
        }
    } else if (threadIdx.x == 50) {
        *(volatile int *)(out + 1) = 1;
    }
}

/* One thread looks and tells the others through shared memory. */
__global__ void by_shared_copy(int *out)
{
    __shared__ int seen;

    for (;;) {
        if (threadIdx.x == 0) {
            seen = *(volatile int *)(out + 1);
        }
        __syncthreads();
        int is_over = seen;
        __syncthreads();
        if (is_over) {
            break;
        }
        if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) {
            *(volatile int *)(out + 1) = 1;
        }
    }
    if (threadIdx.x == 0) {
        atomicAdd(out, 1);
    }
}

/* These wait for nobody: compare and swap until it succeeds, and a queue of work. */
__global__ void greatest(int *out)
{
    float value = (threadIdx.x * 37 + blockIdx.x * 11) % 1009;
    int old = *out, assumed;

    do {
        assumed = old;
        old = atomicCAS(out, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
    } while (old != assumed);
}

__global__ void work_queue(int *out, int count)
{
    for (int item; (item = atomicAdd(out + 1, 1)) < count;) {
        atomicAdd(out, item);
    }
}

__global__ void grid_rounds(int *from, int *to, int count, int nr_rounds)
{
    cg::grid_group grid = cg::this_grid();

    for (int round = 0; round < nr_rounds; round++) {
        for (int i = grid.thread_rank(); i < count; i += grid.size()) {
            to[i] = from[(i + 1) % count] + 1;
        }
        grid.sync();
        for (int i = grid.thread_rank(); i < count; i += grid.size()) {
            from[i] = to[i];
        }
        grid.sync();
    }
}

__global__ void is_grid_valid(int *out)
{
    if (threadIdx.x == 0) {
        out[blockIdx.x] = cg::this_grid().is_valid();
    }
}

static int *out;

template <typename Launch> static const int *after(Launch launch, size_t count = 4)
{
    OK(cudaMemset(out, 0, 4096 * sizeof(int)));
    launch();
    return fetched(out, count);
}

static void check_grid(int nr_blocks, int nr_threads)
{
    int count = 1000, nr_rounds = 6, *from = managed<int>(count), *to = managed<int>(count), host[1000];
    void *arguments[] = {&from, &to, &count, &nr_rounds};

    for (int i = 0; i < count; i++) {
        host[i] = i;
    }
    OK(cudaMemcpy(from, host, sizeof(host), cudaMemcpyHostToDevice));
    OK(cudaLaunchCooperativeKernel((void *)grid_rounds, dim3(nr_blocks), dim3(nr_threads), arguments, 0, 0));
    const int *got = fetched(from, count);
    for (int i = 0; i < count; i++) {
        expect("grid", i, got[i], (i + nr_rounds) % count + nr_rounds);
    }
}

int main()
{
    out = managed<int>(4096);
    const int *got = after([] { flag<<<3, 64>>>(out); });
    for (int block = 0; block < 3; block++) {
        expect("flag", block, got[block], 7);
    }
    expect("spin lock", 0, after([] { spin_lock<<<4, 96>>>(out); })[0], 384);
    expect("try lock", 0, after([] { try_lock<<<4, 96>>>(out); })[0], 384);
    expect("ticket lock", 0, after([] { ticket_lock<<<4, 96>>>(out); })[0], 383 * 384 / 2);
    got = after([] { look_back<<<1000, 64>>>(out); }, 1000);
    for (int block = 0; block < 1000; block++) {
        expect("look back", block, got[block], block + 1);
    }
    got = after([] { look_ahead<<<200, 64>>>(out); }, 200);
    for (int block = 0; block < 200; block++) {
        expect("look ahead", block, got[block], 200 - block);
    }
    int turns = 0;
    for (int block = 0; block < 60; block++) {
        turns = 2 * turns % 1000 + block;
    }
    expect("acquire", 0, after([] { acquire_turns<<<60, 64>>>(out); })[0], turns);
    expect("call", 0, after([] { by_call<<<1, 64>>>(out); })[0], 1);
    expect("fence", 0, after([] { by_fence<<<1, 64>>>(out); })[0], 1);
    expect("vote", 0, after([] { by_vote<<<1, 64>>>(out); })[0], 1);
    expect("shared copy", 0, after([] { by_shared_copy<<<40, 64>>>(out); })[0], 40);
    float top = 0;
    for (int i = 0; i < 256 * 50; i++) {
        top = fmaxf(top, (i % 256 * 37 + i / 256 * 11) % 1009);
    }
    expect("greatest", 0, *(const float *)after([] { greatest<<<50, 256>>>(out); }), top);
    expect("work queue", 0, after([] { work_queue<<<20, 64>>>(out, 5000); })[0], 5000 / 2 * 4999);
    check_grid(1, 32);
    check_grid(7, 96);
    check_grid(128, 64);
    got = after([] { is_grid_valid<<<2, 32>>>(out); });
    expect("ordinary launch", 0, got[0] + got[1], 0);
    return finish();
}
