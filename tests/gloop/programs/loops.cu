/*
 * Callbacks of every kind, in every place of slots: each line of the output is a sum that does not depend on when
 * blocks give way. How many kernels it took goes to the standard error.
 */
#include <cstdio>
#include <gloop/gloop.cuh>

using gloop::DeviceLoop;
using gloop::Global;
using gloop::Shared;

namespace
{

constexpr unsigned nr_blocks = 7, nr_threads = 96, nr_steps = 60;

/* A chain: each callback posts the next one, with what it captured. */
template <class Where>
__device__ void chain(DeviceLoop<Where> *loop, unsigned left, unsigned long long value, unsigned long long *sums)
{
    if (left == 0) {
        if (threadIdx.x == 0) {
            sums[loop->logicalBlockIdx().x] = value;
        }
        return;
    }
    loop->postTask(
        [=](DeviceLoop<Where> *loop) { chain(loop, left - 1, value * 31 + left + loop->logicalBlockIdx().x, sums); });
}

/* Many at once, so that slots in global memory are used in both places. */
template <class Where> __device__ void many(DeviceLoop<Where> *loop, unsigned long long *sums)
{
    for (unsigned number = 0; number < 20; number++) {
        loop->postTask([=](DeviceLoop<Where> *loop) {
            atomicAdd(&sums[loop->logicalBlockIdx().x], number * 1000 + threadIdx.x);
            loop->postTask([=](DeviceLoop<Where> *loop) { atomicAdd(&sums[loop->logicalBlockIdx().x], number); });
        });
    }
}

/* Shared memory that each step changes: kept, it is there after a suspension as well. */
template <class Where> __device__ void turn(DeviceLoop<Where> *loop, unsigned left, unsigned long long *sums)
{
    extern __shared__ unsigned long long wheel[];
    if (left == 0) {
        atomicAdd(&sums[loop->logicalBlockIdx().x], wheel[threadIdx.x] * (threadIdx.x + 1));
        return;
    }
    const unsigned long long next = wheel[(threadIdx.x + 1) % nr_threads];
    __syncthreads();
    wheel[threadIdx.x] = next * 3 + left;
    loop->postTask([=](DeviceLoop<Where> *loop) { turn(loop, left - 1, sums); });
}

/* A long loop that stops only when it must. */
template <class Where>
__device__ void count(DeviceLoop<Where> *loop, unsigned from, unsigned long long value, unsigned long long *sums)
{
    for (unsigned step = from; step < 20 * nr_steps; step++) {
        value = value * 17 + step;
        if (loop->postTaskIfNecessary([=](DeviceLoop<Where> *loop) { count(loop, step + 1, value, sums); })) {
            return;
        }
    }
    if (threadIdx.x == 0) {
        sums[loop->logicalBlockIdx().x] = value;
    }
}

template <class Where>
__device__ void each(DeviceLoop<Where> *loop, unsigned left, unsigned long long mine, unsigned long long *sums)
{
    if (left == 0) {
        atomicAdd(&sums[loop->logicalBlockIdx().x], mine);
        return;
    }
    loop->postTaskPerThread([=](DeviceLoop<Where> *loop) { each(loop, left - 1, mine * 5 + threadIdx.x, sums); });
}

void tell(const char *what, unsigned long long *sums)
{
    std::printf("%s", what);
    for (unsigned block = 0; block < nr_blocks; block++) {
        std::printf(" %llu", sums[block]);
        sums[block] = 0;
    }
    std::printf("\n");
}

template <class Where> void all(gloop::HostLoop &host, unsigned long long *sums)
{
    host.launch<Where>(nr_blocks, nr_threads,
                       [=] __device__(DeviceLoop<Where> *loop) { chain(loop, nr_steps, 1, sums); });
    tell("chain", sums);
    host.launch<Where>(nr_blocks, nr_threads, [=] __device__(DeviceLoop<Where> *loop) { many(loop, sums); });
    tell("many", sums);
    host.launchWithSharedMemory<Where>(nr_blocks, nr_threads, nr_threads * 8, [=] __device__(DeviceLoop<Where> *loop) {
        extern __shared__ unsigned long long wheel[];
        wheel[threadIdx.x] = threadIdx.x;
        for (unsigned number = 1; number < 10; number++) { /* more than eight, but none of them for long */
            loop->keep(wheel + number, 8);
            loop->keep(wheel + number, 0);
        }
        loop->keep(wheel, nr_threads * 8 / 2);
        loop->keep(wheel + nr_threads / 2, nr_threads * 8 / 2);
        turn(loop, nr_steps, sums);
    });
    tell("turn", sums);
    host.launch<Where>(nr_blocks, nr_threads, [=] __device__(DeviceLoop<Where> *loop) { count(loop, 0, 1, sums); });
    tell("count", sums);
    host.launch<Where>(nr_blocks, nr_threads,
                       [=] __device__(DeviceLoop<Where> *loop) { each(loop, nr_steps, threadIdx.x, sums); });
    tell("each", sums);
    /* Threads and blocks in three dimensions, and more blocks than are on the device at once. */
    host.launch<Where>(dim3(nr_blocks, 30, 20), dim3(4, 4, 2), [=] __device__(DeviceLoop<Where> *loop) {
        const uint3 block = loop->logicalBlockIdx();
        const uint3 grid = loop->logicalGridDim();
        const unsigned thread = threadIdx.x + 4 * (threadIdx.y + 4 * threadIdx.z);
        atomicAdd(&sums[block.x], (block.y + grid.y * block.z) * 100ull + thread);
    });
    tell("blocks", sums);
    host.launch<Where>(nr_blocks, nr_threads, [=] __device__(DeviceLoop<Where> *loop) {
        sums[loop->logicalBlockIdx().x] = blockIdx.x; /* as many as are on the device at once */
    });
    tell("own", sums);
    host.launch<Where>(nr_blocks, nr_threads, [=] __device__(DeviceLoop<Where> *loop) {
        loop->postTask([=](DeviceLoop<Where> *loop) {
            sums[0] = 1;
            loop->postTask([=](DeviceLoop<Where> *) { sums[0] = 2; });
            loop->forceExit();
        });
    });
    tell("exit", sums);
    /* After a launch that was not finished, and within bounds. */
    host.launch<Where, gloop::Bounds<32, 4>>(dim3(nr_blocks, 600), 32, [=] __device__(DeviceLoop<Where> *loop) {
        atomicAdd(&sums[loop->logicalBlockIdx().x], loop->logicalBlockIdx().y * 100ull + threadIdx.x);
    });
    tell("again", sums);
}

} // namespace

int main()
{
    unsigned long long *sums = nullptr;
    cudaMallocHost(&sums, nr_blocks * sizeof(*sums));
    std::fill_n(sums, nr_blocks, 0);
    gloop::Options options;
    options.per_thread_bytes = 32;
    gloop::HostLoop host(options);
    all<Shared>(host, sums);
    all<Global>(host, sums);
    std::fprintf(stderr, "%llu\n", host.statistics().nr_kernels);
    return 0;
}
