/*
 * scan, after the CUDA SDK: exclusive sums of short arrays, which one block holds in shared memory, and of large ones,
 * whose pieces are scanned first, then the sums of the pieces, then both are added. Each scan is waited for.
 */
#include "scan.h"

#include <algorithm>
#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

#define BLOCK_SIZE 256
static_assert(SHORT_LENGTH == 4 * BLOCK_SIZE, "a thread takes four elements");

static size_t nr_elements, large_length;
static uint32_t *input, *loops_sums, *loops_short, *loops_large, *fetched_short, *fetched_large; /* of the host */
static uint32_t *d_input, *d_sums, *d_short, *d_large;

/*
 * The sum up to and with this thread's, over groups of `size` threads, a power of two. Each group's room begins with as
 * many zeros as it has elements, so that nobody asks whether there is a left neighbour.
 */
__device__ static uint32_t scan_inclusive(uint32_t element, uint32_t *room, uint32_t size)
{
    uint32_t at = 2 * threadIdx.x - (threadIdx.x & (size - 1));

    room[at] = 0;
    at += size;
    room[at] = element;
    for (uint32_t offset = 1; offset < size; offset *= 2) {
        __syncthreads();
        uint32_t sum = room[at] + room[at - offset];
        __syncthreads();
        room[at] = sum;
    }
    return room[at];
}

__device__ static uint32_t scan_exclusive(uint32_t element, uint32_t *room, uint32_t size)
{
    return scan_inclusive(element, room, size) - element;
}

__device__ static uint4 scan_exclusive(uint4 elements, uint32_t *room, uint32_t size)
{
    elements.y += elements.x;
    elements.z += elements.y;
    elements.w += elements.z;
    uint32_t before = scan_exclusive(elements.w, room, size / 4);
    return make_uint4(before, before + elements.x, before + elements.y, before + elements.z);
}

/* A block for each SHORT_LENGTH elements. */
__global__ void scan_pieces(uint4 *to, const uint4 *from)
{
    __shared__ uint32_t room[2 * BLOCK_SIZE];
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    to[at] = scan_exclusive(from[at], room, SHORT_LENGTH);
}

/* The sums of the pieces, scanned in groups of `size`: the pieces of one array. */
__global__ void scan_sums(uint32_t *sums, const uint32_t *to, const uint32_t *from, uint32_t nr_pieces, uint32_t size)
{
    __shared__ uint32_t room[2 * BLOCK_SIZE];
    uint32_t piece = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t last = piece * SHORT_LENGTH + SHORT_LENGTH - 1;
    uint32_t sum = piece < nr_pieces ? to[last] + from[last] : 0;

    sum = scan_exclusive(sum, room, size);
    if (piece < nr_pieces) {
        sums[piece] = sum;
    }
}

__global__ void add_sums(uint4 *to, const uint32_t *sums)
{
    __shared__ uint32_t sum;
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;

    if (threadIdx.x == 0) {
        sum = sums[blockIdx.x];
    }
    __syncthreads();
    uint4 elements = to[at];
    elements.x += sum;
    elements.y += sum;
    elements.z += sum;
    elements.w += sum;
    to[at] = elements;
}

/* The largest power of two that divides the number of elements and that two levels can scan. */
static size_t choose_length(size_t nr)
{
    return std::min(nr & -nr, (size_t)MOST_LENGTH);
}

static double prepare(size_t size)
{
    uint64_t seed = 5;
    if (size % (2 * SHORT_LENGTH) || size > (1u << 30)) {
        benchmark_fail("the size %zu is not a multiple of %d up to 2^30", size, 2 * SHORT_LENGTH);
    }
    nr_elements = size;
    large_length = choose_length(size);
    input = (uint32_t *)benchmark_allocate(size, sizeof(uint32_t));
    loops_sums = (uint32_t *)benchmark_allocate(size / SHORT_LENGTH, sizeof(uint32_t));
    for (uint32_t **array : {&loops_short, &loops_large, &fetched_short, &fetched_large}) {
        *array = (uint32_t *)benchmark_allocate(size, sizeof(uint32_t));
    }
    for (size_t i = 0; i < size; i++) {
        input[i] = benchmark_random(&seed);
    }
    if (benchmark_uses_device()) {
        for (uint32_t **array : {&d_input, &d_short, &d_large}) {
            BENCHMARK_CUDA(cudaMalloc(array, size * sizeof(uint32_t)));
        }
        BENCHMARK_CUDA(cudaMalloc(&d_sums, size / SHORT_LENGTH * sizeof(uint32_t)));
        BENCHMARK_CUDA(cudaMemcpy(d_input, input, size * sizeof(uint32_t), cudaMemcpyHostToDevice));
    }
    return 2e-6 * size;
}

static void scan_short()
{
    scan_pieces<<<nr_elements / SHORT_LENGTH, BLOCK_SIZE>>>((uint4 *)d_short, (uint4 *)d_input);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void scan_large()
{
    unsigned nr_pieces = nr_elements / SHORT_LENGTH;
    scan_pieces<<<nr_pieces, BLOCK_SIZE>>>((uint4 *)d_large, (uint4 *)d_input);
    scan_sums<<<(nr_pieces + BLOCK_SIZE - 1) / BLOCK_SIZE, BLOCK_SIZE>>>(d_sums, d_large, d_input, nr_pieces,
                                                                         large_length / SHORT_LENGTH);
    add_sums<<<nr_pieces, BLOCK_SIZE>>>((uint4 *)d_large, d_sums);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void device_round()
{
    scan_short();
    scan_large();
}

static void loops_round()
{
    scan_short_loops(loops_short, input, nr_elements);
    scan_large_loops(loops_large, loops_sums, input, nr_elements, large_length);
}

static void fetch()
{
    BENCHMARK_CUDA(cudaMemcpy(fetched_short, d_short, nr_elements * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    BENCHMARK_CUDA(cudaMemcpy(fetched_large, d_large, nr_elements * sizeof(uint32_t), cudaMemcpyDeviceToHost));
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("short", (int32_t *)fetched_short, (int32_t *)loops_short, nr_elements, why,
                                  why_size) ||
           benchmark_compare_ints("large", (int32_t *)fetched_large, (int32_t *)loops_large, nr_elements, why,
                                  why_size);
}

static void release()
{
    if (benchmark_uses_device()) {
        for (uint32_t *array : {d_input, d_sums, d_short, d_large}) {
            BENCHMARK_CUDA(cudaFree(array));
        }
    }
    for (uint32_t *array : {input, loops_sums, loops_short, loops_large, fetched_short, fetched_large}) {
        free(array);
    }
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "scan",
        .summary = "running sums of short arrays, within a block, and of large ones, across blocks",
        .unit = "Melements/s",
        .default_size = 1 << 19,
        .size_help = "elements, a multiple of 2048; large arrays are of the largest power of two that divides it",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
