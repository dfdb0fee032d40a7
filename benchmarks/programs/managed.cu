/*
 * Managed memory in the ways that programs use it: `managed PATTERN MIB` prints the milliseconds from its allocation to
 * the last read on the CPU, and a sum that is the same wherever it runs.
 *
 *     streaming    the CPU writes all of it, ten kernels add to all of it, the CPU reads all of it
 *     gather       the CPU writes all of it, kernels read it in no order, the CPU reads what they wrote, an eighth
 *     ping-pong    in each of ten steps the CPU adds to a sixteenth, and a kernel to all of it
 *     read-mostly  advised so: in each of ten steps a kernel and the CPU read all of it
 *     prefetched   as streaming, and told beforehand where it will be used next
 *     preferred    advised to stay with the CPU: in each of ten steps the CPU adds to all of it, and a kernel to a
 *                  sixteenth
 *     words        likewise: ten thousand times a kernel writes a word that the CPU waits for, and the reverse
 */
#include <chrono>
#include <cstring>

#include "check.h"

typedef unsigned long long u64;

const int STEPS = 10;
const unsigned BLOCKS = 1056, THREADS = 256;

__global__ void add(u64 *values, size_t nr, u64 what)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < nr; i += stride) {
        values[i] += what + i;
    }
}

__global__ void gather(const u64 *values, size_t nr, u64 *out, size_t nr_out, u64 seed)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < nr_out; i += stride) {
        const u64 mixed = (i + seed) * 0x9E3779B97F4A7C15ull;
        out[i] += values[(mixed ^ (mixed >> 29)) % nr];
    }
}

__global__ void total(const u64 *values, size_t nr, u64 *sum)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    u64 mine = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < nr; i += stride) {
        mine += values[i];
    }
    atomicAdd(sum, mine);
}

static u64 *managed(size_t nr)
{
    u64 *values;
    CHECK(cudaMallocManaged(&values, nr * sizeof(u64)));
    return values;
}

static void write_all(u64 *values, size_t nr)
{
    for (size_t i = 0; i < nr; i++) {
        values[i] = i * 3;
    }
}

static u64 read_all(const u64 *values, size_t nr)
{
    u64 sum = 0;
    for (size_t i = 0; i < nr; i++) {
        sum += values[i];
    }
    return sum;
}

static void prefetch(u64 *values, size_t nr, cudaMemLocationType where)
{
    cudaMemLocation place = {};
    place.type = where;
    CHECK(cudaMemPrefetchAsync(values, nr * sizeof(u64), place, 0, nullptr));
}

static u64 streaming(size_t nr, bool is_prefetched)
{
    u64 *values = managed(nr);
    write_all(values, nr);
    if (is_prefetched) {
        prefetch(values, nr, cudaMemLocationTypeDevice);
    }
    for (int step = 0; step < STEPS; step++) {
        add<<<BLOCKS, THREADS>>>(values, nr, step);
    }
    if (is_prefetched) {
        prefetch(values, nr, cudaMemLocationTypeHost);
    }
    CHECK(cudaDeviceSynchronize());
    return read_all(values, nr);
}

static u64 gathering(size_t nr)
{
    u64 *values = managed(nr), *out = managed(nr / 8);
    write_all(values, nr);
    for (int step = 0; step < STEPS; step++) {
        gather<<<BLOCKS, THREADS>>>(values, nr, out, nr / 8, step);
    }
    CHECK(cudaDeviceSynchronize());
    return read_all(out, nr / 8);
}

static u64 ping_pong(size_t nr)
{
    u64 *values = managed(nr);
    u64 sum = 0;
    write_all(values, nr);
    for (int step = 0; step < STEPS; step++) {
        u64 *part = values + step * (nr / 16);
        for (size_t i = 0; i < nr / 16; i++) {
            part[i] += step;
        }
        add<<<BLOCKS, THREADS>>>(values, nr, step);
        CHECK(cudaDeviceSynchronize());
        sum += part[nr / 32];
    }
    return sum;
}

static u64 read_mostly(size_t nr)
{
    u64 *values = managed(nr), *sum = managed(1);
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    u64 all = 0;
    write_all(values, nr);
    CHECK(cudaMemAdvise(values, nr * sizeof(u64), cudaMemAdviseSetReadMostly, device));
    for (int step = 0; step < STEPS; step++) {
        total<<<BLOCKS, THREADS>>>(values, nr, sum);
        CHECK(cudaDeviceSynchronize());
        all += read_all(values, nr);
    }
    return all + *sum;
}

/* The device reaches it where it is. */
static void stay_with_the_cpu(u64 *values, size_t nr)
{
    cudaMemLocation host = {};
    host.type = cudaMemLocationTypeHost;
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemAdvise(values, nr * sizeof(u64), cudaMemAdviseSetPreferredLocation, host));
    CHECK(cudaMemAdvise(values, nr * sizeof(u64), cudaMemAdviseSetAccessedBy, device));
}

static u64 preferred(size_t nr)
{
    u64 *values = managed(nr);
    stay_with_the_cpu(values, nr);
    write_all(values, nr);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < nr; i++) {
            values[i] += step;
        }
        add<<<BLOCKS, THREADS>>>(values + step * (nr / 16), nr / 16, step);
        CHECK(cudaDeviceSynchronize());
    }
    return read_all(values, nr);
}

__global__ void answer(volatile u64 *asked, volatile u64 *answered, u64 nr)
{
    for (u64 i = 1; i <= nr; i++) {
        while (*asked != i) {
        }
        *answered = i;
    }
}

static u64 words()
{
    const u64 NR = 10000;
    volatile u64 *both = managed(2);
    stay_with_the_cpu((u64 *)both, 2);
    both[0] = both[1] = 0;
    answer<<<1, 1>>>(both, both + 1, NR);
    CHECK(cudaGetLastError());
    for (u64 i = 1; i <= NR; i++) {
        both[0] = i;
        while (both[1] != i) {
        }
    }
    CHECK(cudaDeviceSynchronize());
    return both[1];
}

int main(int argc, char **argv)
{
    const char *pattern = argc > 1 ? argv[1] : "";
    const size_t nr = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 64) << 17;
    CHECK(cudaFree(nullptr));
    const auto begin = std::chrono::steady_clock::now();
    u64 sum;
    if (!strcmp(pattern, "streaming")) {
        sum = streaming(nr, false);
    } else if (!strcmp(pattern, "prefetched")) {
        sum = streaming(nr, true);
    } else if (!strcmp(pattern, "gather")) {
        sum = gathering(nr);
    } else if (!strcmp(pattern, "ping-pong")) {
        sum = ping_pong(nr);
    } else if (!strcmp(pattern, "read-mostly")) {
        sum = read_mostly(nr);
    } else if (!strcmp(pattern, "preferred")) {
        sum = preferred(nr);
    } else if (!strcmp(pattern, "words")) {
        sum = words();
    } else {
        fprintf(stderr, "usage: %s streaming|gather|ping-pong|read-mostly|prefetched|preferred|words MIB\n", argv[0]);
        return 2;
    }
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    printf("ms %.1f sum %llu\n", taken.count(), sum);
    return 0;
}
