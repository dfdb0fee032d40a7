/* The kernels of all cases in plain C: one module, compiled to PTX once and embedded in conformance-driver. */
#include <assert.h>
#include <stdio.h>

extern "C" {

__device__ unsigned int counter = 5;
__device__ unsigned int table[16] = {1, 1, 2, 3, 5, 8, 13, 21};
__constant__ unsigned int coefficients[4] = {2, 3, 5, 7};

struct mixed {
    char letter;
    double number;
    short list[3];
};

__global__ void empty() {}

__global__ void fill(unsigned int *out, unsigned int value, unsigned int nr_words)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr_words) {
        out[i] = value + i;
    }
}

__global__ void add_one(unsigned int *words, unsigned int nr_words)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr_words) {
        words[i] += 1;
    }
}

/* Of conditional nodes, whose handles are numbers. */
__global__ void count_down(unsigned long long handle, unsigned int *left)
{
    *left -= 1;
    cudaGraphSetConditional(handle, *left);
}

__global__ void choose(unsigned long long handle, const unsigned int *value)
{
    cudaGraphSetConditional(handle, *value);
}

__global__ void hold(volatile unsigned int *flags)
{
    flags[0] = 1;
    __threadfence_system();
    while (flags[1] == 0)
        ;
}

__global__ void shape(unsigned int *out)
{
    unsigned int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 10000 + thread;
}

__global__ void reverse_static(unsigned int *words)
{
    __shared__ unsigned int kept[256];
    kept[threadIdx.x] = words[threadIdx.x];
    __syncthreads();
    words[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

extern __shared__ unsigned int dynamic_words[];

__global__ void reverse_dynamic(unsigned int *words)
{
    dynamic_words[threadIdx.x] = words[threadIdx.x];
    __syncthreads();
    words[threadIdx.x] = dynamic_words[blockDim.x - 1 - threadIdx.x];
}

__global__ void take_mixed(unsigned int *out, mixed value, float single, unsigned char byte)
{
    out[0] = value.letter;
    out[1] = (unsigned int)value.number;
    out[2] = value.list[0] + value.list[1] + value.list[2];
    out[3] = (unsigned int)single;
    out[4] = byte;
}

struct large {
    unsigned int words[1000];
};

__global__ void take_large(unsigned int *out, large value)
{
    out[threadIdx.x] = value.words[threadIdx.x * 10];
}

__global__ void use_globals(unsigned int *out)
{
    if (threadIdx.x == 0) {
        out[4] = atomicAdd(&counter, 1);
    }
    if (threadIdx.x < 4) {
        out[threadIdx.x] = coefficients[threadIdx.x] * table[threadIdx.x + 4];
    }
}

__global__ void __launch_bounds__(128) bounded(unsigned int *out)
{
    out[threadIdx.x] = threadIdx.x;
}

__global__ void meet_all(unsigned int *counts)
{
    if (threadIdx.x == 0) {
        atomicAdd(&counts[0], 1);
        while (atomicAdd(&counts[0], 0) < gridDim.x)
            ;
        atomicAdd(&counts[1], counts[0]);
    }
}

__global__ void say_hello(int number)
{
    printf("hello: %d %s %.2f %c\n", number, "text", number * 0.5, 'x');
}

__global__ void claim(int is_true)
{
    assert(is_true);
}

__global__ void trap_now()
{
    asm volatile("trap;");
}

__global__ void store_at(unsigned long long address)
{
    *(volatile unsigned int *)address = 1;
}

__global__ void misaligned(unsigned int *words)
{
    atomicAdd((unsigned int *)((char *)words + 2), 1);
}

__global__ void sum_atomic(unsigned int *total, const unsigned int *words, unsigned int nr_words)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr_words) {
        atomicAdd(total, words[i]);
    }
}

__global__ void use_stack(unsigned int *out, unsigned int seed)
{
    unsigned int local[64];
    for (unsigned int i = 0; i < 64; i++) {
        local[i] = seed * i + threadIdx.x;
    }
    unsigned int at = seed;
    for (unsigned int i = 0; i < 64; i++) {
        at = local[at % 64] + i;
    }
    out[threadIdx.x] = at;
}

__global__ void allocate_inside(unsigned int *out)
{
    unsigned int *own = (unsigned int *)malloc(sizeof(unsigned int));
    *own = threadIdx.x + 1;
    out[threadIdx.x] = *own;
    free(own);
}
}
