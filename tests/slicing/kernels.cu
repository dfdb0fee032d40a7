// Kernels whose parts must give what the whole gives: (out, in, n), a grid of any shape, blocks of 64 threads in 1 or 2
// dimensions. `out` has a word for each thread of the grid, and 64 words behind them that all blocks count in.

#include <stdio.h>

typedef unsigned int word;

#define NR_SUMS 64

__device__ word seen_blocks;
__device__ word sums_of_blocks[NR_SUMS];
static __device__ word hidden[4] = {3, 5, 7, 11};
__constant__ word factors[8] = {1, 3, 5, 7, 9, 11, 13, 15};

__device__ word linear_block(void)
{
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

__device__ word linear_thread(void)
{
    return threadIdx.y * blockDim.x + threadIdx.x;
}

__device__ word number(void)
{
    return linear_block() * (blockDim.x * blockDim.y) + linear_thread();
}

extern "C" __global__ void indices(word *out, const word *in, word n)
{
    out[number()] = blockIdx.x + 1000 * blockIdx.y + 1000000 * blockIdx.z + gridDim.x * 7 + gridDim.y * 77 +
                    gridDim.z * 777 + in[n % 16];
}

extern "C" __global__ void early_return(word *out, const word *in, word n)
{
    const word i = number();
    if (i >= n) {
        return;
    }
    for (word k = 0; k < i % 7; k++) {
        if (in[(i + k) % 16] % 5 == 4) {
            return;
        }
    }
    out[i] = in[i % 16] + i;
}

// Threads of a block leave before and between barriers that the others still have before them.
extern "C" __global__ void early_return_at_barriers(word *out, const word *in, word n)
{
    __shared__ word room[64];
    const word me = linear_thread();
    const word i = number();
    room[me] = in[(me + i) % 16];
    if (i % 11 == 3) {
        return;
    }
    __syncthreads();
    word sum = 0;
    for (word k = 0; k < 64; k++) {
        sum += room[k];
    }
    __syncthreads();
    if (i >= n) {
        return;
    }
    room[me] = sum + me;
    if (me % 3 == 0) {
        out[i] = sum;
        return;
    }
    __syncthreads();
    out[i] = room[(me + 1) % 64] * 3 + sum;
}

extern "C" __global__ void tiles(word *out, const word *in, word n)
{
    __shared__ word tile[2][64];
    const word me = linear_thread();
    word sum = 0;
    for (word k = 0; k < 5 + linear_block() % 3; k++) {
        tile[k & 1][me] = in[(me + k) % 16] + linear_block();
        __syncthreads();
        sum += tile[k & 1][(me * 7 + k) % 64] * factors[k % 8];
    }
    out[number()] = sum + n;
}

// Shared memory of the last block must not be taken for the own.
extern "C" __global__ void left_in_shared(word *out, const word *in, word n)
{
    extern __shared__ word room[];
    const word me = linear_thread();
    if (me == 63 - linear_block() % 64) {
        room[0] = linear_block() * 17 + n;
    }
    __syncthreads();
    out[number()] = room[0] + in[me % 16];
}

extern "C" __global__ void atomics(word *out, const word *in, word n)
{
    word *sums = out + gridDim.x * gridDim.y * gridDim.z * blockDim.x * blockDim.y;
    atomicAdd(&sums[number() % 32], in[number() % 16]);
    atomicMax(&sums[32], number());
    atomicXor(&sums[33], number() * 2654435761u);
    word *const shared = &out[linear_block() / 8 * 8 *
                              (blockDim.x * blockDim.y)]; /* eight blocks': of thousands some would wait for seconds */
    if (linear_thread() % 32 == 0) {
        word seen = *shared, assumed;
        do {
            assumed = seen;
            seen = atomicCAS(shared, assumed, assumed + n % 5 + 1);
        } while (seen != assumed);
    }
    if (&out[number()] != shared) {
        out[number()] = 1;
    }
}

// The last block sums up what all left, as in threadFenceReduction.
extern "C" __global__ void last_block(word *out, const word *in, word n)
{
    __shared__ bool is_last;
    const word nr_blocks = gridDim.x * gridDim.y * gridDim.z;
    word *sums = out + nr_blocks * blockDim.x * blockDim.y;
    if (linear_thread() == 0) {
        atomicAdd(&sums_of_blocks[linear_block() % NR_SUMS], in[linear_block() % 16] + linear_block());
        __threadfence();
        is_last = atomicInc(&seen_blocks, nr_blocks - 1) == nr_blocks - 1;
    }
    __syncthreads();
    if (is_last) {
        sums[linear_thread()] = sums_of_blocks[linear_thread()] + n;
        sums_of_blocks[linear_thread()] = 0;
    }
    out[number()] = hidden[number() % 4];
}

__device__ __noinline__ word of_a_function(const word *in, word n)
{
    __syncthreads();
    return in[(blockIdx.x + n) % 16] * gridDim.x + blockIdx.y * gridDim.z + blockIdx.z;
}

extern "C" __global__ void functions(word *out, const word *in, word n)
{
    word sum = of_a_function(in, n);
    if (linear_thread() % 5 == 1) {
        out[number()] = sum;
        return;
    }
    out[number()] = sum + of_a_function(in, n + 1);
}

extern "C" __global__ void warps(word *out, const word *in, word n)
{
    word value = in[number() % 16] + number();
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, distance);
    }
    out[number()] = value + n;
}

extern "C" __global__ void prints(word *out, const word *in, word n)
{
    if (number() == 70) {
        printf("block 1 has %u of %u\n", in[3], n);
    }
    out[number()] = 2;
}

extern "C" __global__ void nothing(void) {}

// None of these has a variant.

extern "C" __global__ void looks_back(word *out, const word *in, word n)
{
    volatile word *flags = out;
    if (linear_thread() == 0 && linear_block() > 0) {
        while (flags[linear_block() - 1] == 0)
            ;
    }
    __syncthreads();
    flags[linear_block()] = in[0] + n;
}

extern "C" __global__ void takes_turns(word *out, const word *in, word n)
{
    if (linear_thread() == 0) {
        while (atomicAdd(out, 0) != linear_block() + in[0] + n)
            ;
    }
}

extern "C" __global__ void polls_in_an_inner_loop(word *out, const word *in, word n)
{
    for (word k = 0; k < n; k++) {
        while (atomicCAS(&out[k], 1, 1) != 1) {
            __nanosleep(100);
        }
        out[k + 1] = in[k % 16];
    }
}

__device__ __noinline__ word a_flag(word *at)
{
    return *(volatile word *)at;
}

extern "C" __global__ void polls_in_a_function(word *out, const word *in, word n)
{
    while (a_flag(out) != n)
        ;
    out[1] = in[0];
}

typedef word (*unary)(word);
__device__ __noinline__ word twice(word x)
{
    return 2 * x;
}
__device__ __noinline__ word thrice(word x)
{
    return 3 * x;
}

extern "C" __global__ void calls_by_address(word *out, const word *in, word n)
{
    unary chosen = in[n % 16] % 2 ? twice : thrice;
    out[number()] = chosen(number());
}
