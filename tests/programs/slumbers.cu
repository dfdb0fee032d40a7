/*
 * Keeps what lies where the driver put it: a large variable whose address is in memory, a function's address, an array
 * with a surface, a graph. Uses all of it once for each line of its input, and is idle in between; nothing of it may
 * change.
 */
#include <iostream>
#include <string>

#include "check.h"

static const int NR = 4 << 20, SIDE = 256;

typedef unsigned (*operation)(unsigned);

struct kept {
    unsigned *variable, *allocated;
    operation function;
};

__device__ unsigned variable[NR];
__device__ kept mine;

__device__ __noinline__ unsigned add_three(unsigned value)
{
    return value + 3;
}

__global__ void keep(unsigned *allocated)
{
    mine.variable = variable;
    mine.allocated = allocated;
    mine.function = add_three;
}

__global__ void step(cudaSurfaceObject_t surface)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < NR; i += gridDim.x * blockDim.x) {
        mine.variable[i] = mine.function(mine.variable[i]);
        mine.allocated[i] += mine.variable[i];
    }
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    for (int y = 0; y < SIDE && x < SIDE; y++) {
        surf2Dwrite(surf2Dread<unsigned>(surface, x * (int)sizeof(unsigned), y) + 1, surface, x * (int)sizeof(unsigned),
                    y);
    }
}

__global__ void sum(cudaSurfaceObject_t surface, unsigned long long *out)
{
    unsigned long long own = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < NR; i += gridDim.x * blockDim.x) {
        own += mine.allocated[i];
    }
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    for (int y = 0; y < SIDE && x < SIDE; y++) {
        own += surf2Dread<unsigned>(surface, x * (int)sizeof(unsigned), y);
    }
    atomicAdd(out, own);
}

int main()
{
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    const size_t row_bytes = SIDE * sizeof(unsigned);
    unsigned *allocated, *zeros = (unsigned *)std::calloc(SIDE, row_bytes);
    unsigned long long *out, total, expected;
    unsigned nr_lines = 0;
    bool is_right = true;
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t surface;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&allocated, NR * sizeof(*allocated)));
    CHECK(cudaMallocHost(&out, sizeof(*out)));
    CHECK(cudaMemset(allocated, 0, NR * sizeof(*allocated)));
    resource.resType = cudaResourceTypeArray;
    CHECK(cudaMallocArray(&resource.res.array.array, &format, SIDE, SIDE, cudaArraySurfaceLoadStore));
    CHECK(
        cudaMemcpy2DToArray(resource.res.array.array, 0, 0, zeros, row_bytes, row_bytes, SIDE, cudaMemcpyHostToDevice));
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    keep<<<1, 1>>>(allocated);
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    step<<<8, 256, 0, stream>>>(surface);
    sum<<<8, 256, 0, stream>>>(surface, out);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaDeviceSynchronize());
    std::printf("ready\n");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        nr_lines++;
        *out = 0;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        total = *out;
        expected = 3ull * nr_lines * (nr_lines + 1) / 2 * NR + (unsigned long long)nr_lines * SIDE * SIDE;
        is_right = is_right && total == expected;
        std::printf("%u: %llu\n", nr_lines, total);
        std::fflush(stdout);
    }
    return verdict(is_right);
}
