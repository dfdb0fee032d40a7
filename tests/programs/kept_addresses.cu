/*
 * Keeps, in memory of the device, addresses of every kind: of a variable, a constant, a function, memory of every kind
 * and of the heap, a texture and a surface. Uses all of them once for each line of its input, by a graph that has them,
 * too, while another thread launches all the time. Whatever happens to the program in between, nothing may change.
 */
#include <atomic>
#include <cmath>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

static const int NR = 1 << 16, SIDE = 16;

typedef int (*operation)(int);

struct kept {
    int *variable, *allocated, *pooled, *managed, *pinned, *registered, *heap;
    const int *constant;
    operation function;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
};

__device__ int variable[NR];
__constant__ int constant[SIDE];
__device__ kept mine;

__device__ __noinline__ int add_three(int value)
{
    return value + 3;
}

__global__ void keep(kept given)
{
    mine = given;
    mine.variable = variable;
    mine.constant = constant;
    mine.function = add_three;
    mine.heap = (int *)malloc(NR * sizeof(int));
    for (int i = 0; i < NR; i++) {
        mine.heap[i] = 0;
    }
}

/* Each word of each memory: three more. The surface: one more, and the texture reads all of it. */
__global__ void step(int *total)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < NR; i += gridDim.x * blockDim.x) {
        int *const memories[] = {mine.variable, mine.allocated,  mine.pooled, mine.managed,
                                 mine.pinned,   mine.registered, mine.heap};
        for (int *memory : memories) {
            memory[i] = mine.function(memory[i]);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        int sum = 0;
        for (int y = 0; y < SIDE; y++) {
            for (int x = 0; x < SIDE; x++) {
                sum += tex2D<int>(mine.texture, x, y) * mine.constant[y];
            }
        }
        *total = sum;
    }
}

__global__ void raise_all()
{
    const int x = threadIdx.x, y = threadIdx.y;
    surf2Dwrite(surf2Dread<int>(mine.surface, x * (int)sizeof(int), y) + 1, mine.surface, x * (int)sizeof(int), y);
}

__global__ void look(int wanted, int *nr_wrong)
{
    for (int i = threadIdx.x; i < NR; i += blockDim.x) {
        int *const memories[] = {mine.variable, mine.allocated,  mine.pooled, mine.managed,
                                 mine.pinned,   mine.registered, mine.heap};
        for (int at = 0; at < 7; at++) {
            if (memories[at][i] != wanted) {
                atomicAdd(nr_wrong + at, 1);
            }
        }
    }
}

__global__ void count(unsigned long long *launches)
{
    ++*launches;
}

static cudaArray_t make_array()
{
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaArray_t array;
    std::vector<int> texels(SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; i++) {
        texels[i] = i;
    }
    CHECK(cudaMallocArray(&array, &format, SIDE, SIDE, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), SIDE * sizeof(int), SIDE * sizeof(int), SIDE,
                              cudaMemcpyHostToDevice));
    return array;
}

/* What the texture reads after so many lines: texel i is i + lines, weighed by its row's number plus one. */
static int texture_total(int nr_lines)
{
    int total = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        total += (i + nr_lines) * (i / SIDE + 1);
    }
    return total;
}

int main()
{
    const size_t bytes = NR * sizeof(int);
    std::vector<int> weights(SIDE), registered(NR, 0);
    kept given = {};
    int *total, *nr_wrong;
    cudaStream_t stream;
    cudaEvent_t first, second;
    cudaResourceDesc resource = {};
    cudaTextureDesc description = {};
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -1));
    CHECK(cudaMalloc(&given.allocated, bytes));
    CHECK(cudaMallocAsync(&given.pooled, bytes, stream));
    CHECK(cudaMallocManaged(&given.managed, bytes));
    CHECK(cudaMallocHost(&given.pinned, bytes));
    CHECK(cudaHostRegister(registered.data(), bytes, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer((void **)&given.registered, registered.data(), 0));
    CHECK(cudaMallocHost(&total, sizeof(*total)));
    CHECK(cudaMalloc(&nr_wrong, 7 * sizeof(*nr_wrong)));
    for (int *memory : {given.allocated, given.pooled, given.managed, given.pinned}) {
        CHECK(cudaMemsetAsync(memory, 0, bytes, stream));
    }
    for (int i = 0; i < SIDE; i++) {
        weights[i] = i + 1;
    }
    CHECK(cudaMemcpyToSymbol(constant, weights.data(), SIDE * sizeof(int)));
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = make_array();
    CHECK(cudaCreateTextureObject(&given.texture, &resource, &description, nullptr));
    CHECK(cudaCreateSurfaceObject(&given.surface, &resource));
    CHECK(cudaStreamSynchronize(stream));
    keep<<<1, 1, 0, stream>>>(given);
    CHECK(cudaEventCreate(&first));
    CHECK(cudaEventCreate(&second));

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    raise_all<<<1, dim3(SIDE, SIDE), 0, stream>>>();
    step<<<16, 256, 0, stream>>>(total);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventRecord(first, stream));
    look<<<1, 256, 0, stream>>>(0, nr_wrong);
    CHECK(cudaEventRecord(second, stream));
    CHECK(cudaStreamSynchronize(stream));
    float before = 0, after = 0;
    CHECK(cudaEventElapsedTime(&before, first, second));

    unsigned long long *launches, nr_launched = 0, nr_counted = 0;
    std::atomic<bool> goes_on{true};
    CHECK(cudaMalloc(&launches, sizeof(*launches)));
    CHECK(cudaMemset(launches, 0, sizeof(*launches)));
    std::thread launcher([&] {
        cudaStream_t own;
        CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        for (; goes_on; nr_launched++) {
            count<<<1, 1, 0, own>>>(launches);
            CHECK(cudaStreamSynchronize(own));
        }
    });
    std::printf("ready\n");
    std::fflush(stdout);

    bool is_right = true;
    int nr_lines = 0;
    for (std::string line; std::getline(std::cin, line);) {
        int wrong[7], address_changed;
        int *variable_now;
        nr_lines++;
        *total = 0;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemsetAsync(nr_wrong, 0, sizeof(wrong), stream));
        look<<<1, 256, 0, stream>>>(3 * nr_lines, nr_wrong);
        CHECK(cudaMemcpyAsync(wrong, nr_wrong, sizeof(wrong), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&after, first, second));
        CHECK(cudaGetSymbolAddress((void **)&variable_now, variable));
        address_changed = nr_lines > 1 && variable_now != given.variable;
        given.variable = variable_now;
        std::printf("%d:", nr_lines);
        for (int each : wrong) {
            std::printf(" %d", each);
            is_right = is_right && each == 0;
        }
        const bool is_host_right = given.managed[NR - 1] == 3 * nr_lines && given.pinned[0] == 3 * nr_lines &&
                                   registered[NR / 2] == 3 * nr_lines;
        const bool is_texture_right = *total == texture_total(nr_lines),
                   is_time_right = std::fabs(after - before) < 0.001f;
        std::printf(" host %d texture %d time %d address %d\n", is_host_right, is_texture_right, is_time_right,
                    !address_changed);
        std::fflush(stdout);
        is_right = is_right && is_host_right && is_texture_right && is_time_right && !address_changed;
    }
    goes_on = false;
    launcher.join();
    CHECK(cudaMemcpy(&nr_counted, launches, sizeof(nr_counted), cudaMemcpyDeviceToHost));
    std::printf("launches: %d\n", nr_counted == nr_launched);
    return verdict(is_right && nr_counted == nr_launched);
}
