/* Launches, streams, events and graphs through the runtime. */
#include <cooperative_groups.h>
#include <thread>

#include "runtime.cuh"

static __global__ void fill(unsigned int *out, unsigned int value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = value + blockIdx.x * blockDim.x + threadIdx.x;
}

static __global__ void __launch_bounds__(64) bounded() {}

template <typename T> static __global__ void scale(T *values, T factor)
{
    values[threadIdx.x] = values[threadIdx.x] * factor;
}

static __global__ void turn_round(unsigned int *words)
{
    extern __shared__ unsigned int kept[];
    kept[threadIdx.x] = words[threadIdx.x];
    __syncthreads();
    words[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

static __global__ void meet(unsigned int *count)
{
    if (threadIdx.x == 0) {
        atomicAdd(count, 1);
    }
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) {
        atomicAdd(count + 1, *count);
    }
}

static __global__ void greet(int number)
{
    printf("greeting %d\n", number);
}

CASE(runtime_launch)
{
    unsigned int *words = device_words(1024, 0);
    LAUNCH(fill<<<8, 128>>>(words, 77));
    DO(cudaDeviceSynchronize());
    say_device_bytes("filled", words, 4096);
    LAUNCH(turn_round<<<1, 256, 1024>>>(words));
    say_device_bytes("turned", words, 4096);
}

CASE(runtime_launch_wrongly)
{
    unsigned int *words = device_words(1024, 0);
    LAUNCH(fill<<<0, 128>>>(words, 77));
    LAUNCH(fill<<<1, 2048>>>(words, 77));
    LAUNCH(fill<<<1, dim3(1, 1, 65)>>>(words, 77));
    LAUNCH(bounded<<<1, 65>>>());
    LAUNCH(turn_round<<<1, 32, 1 << 20>>>(words));
    LAUNCH(fill<<<1, 1>>>(words, 77));
    DO(cudaDeviceSynchronize());
}

CASE(runtime_launch_templates)
{
    unsigned int *words = device_words(64, 1);
    float *reals = nullptr;
    cudaMalloc(&reals, 256);
    cudaMemset(reals, 0x3f, 256);
    LAUNCH(scale<unsigned int><<<1, 64>>>(words, 3));
    LAUNCH(scale<float><<<1, 64>>>(reals, 2.0f));
    say_device_bytes("words", words, 256);
    say_device_bytes("reals", reals, 256);
}

CASE(runtime_launch_by_call)
{
    unsigned int *words = device_words(1024, 0), value = 5;
    void *arguments[] = {&words, &value};
    DO(cudaLaunchKernel(reinterpret_cast<const void *>(fill), dim3(8), dim3(128), arguments, 0, nullptr));
    say_device_bytes("filled", words, 4096);
    DO(cudaLaunchKernel(nullptr, dim3(8), dim3(128), arguments, 0, nullptr));
    static int no_kernel;
    DO(cudaLaunchKernel(&no_kernel, dim3(8), dim3(128), arguments, 0, nullptr));
    DO(cudaGetLastError());
}

CASE(runtime_launch_cooperative)
{
    unsigned int *count = device_words(2, 0);
    cudaMemset(count, 0, 8);
    void *arguments[] = {&count};
    DO(cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(meet), dim3(8), dim3(64), arguments, 0, nullptr));
    DO(cudaDeviceSynchronize());
    say_device_bytes("met", count, 8);
    DO(cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(meet), dim3(1 << 20), dim3(64), arguments, 0,
                                   nullptr));
    DO(cudaGetLastError());
}

CASE(runtime_launch_printf)
{
    LAUNCH(greet<<<1, 1>>>(1));
    LAUNCH(greet<<<1, 1>>>(2));
    DO(cudaDeviceSynchronize());
}

CASE(runtime_function_attributes)
{
    cudaFuncAttributes attributes = {};
    DO(cudaFuncGetAttributes(&attributes, fill));
    printf("fill: %zu %zu %zu %d %d\n", attributes.sharedSizeBytes, attributes.constSizeBytes,
           attributes.localSizeBytes, attributes.maxThreadsPerBlock, attributes.maxDynamicSharedSizeBytes);
    DO(cudaFuncGetAttributes(&attributes, bounded));
    say_number("bounded", attributes.maxThreadsPerBlock);
    DO(cudaFuncSetAttribute(turn_round, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    DO(cudaFuncSetCacheConfig(fill, cudaFuncCachePreferL1));
    int nr_blocks = 0;
    DO(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_blocks, fill, 128, 0));
    say_number("blocks", nr_blocks);
    DO(cudaFuncGetAttributes(&attributes, static_cast<const void *>(nullptr)));
    DO(cudaGetLastError());
}

static void count_call(void *data)
{
    ++*static_cast<int *>(data);
}

CASE(runtime_streams_and_events)
{
    unsigned int *words = device_words(1024, 0);
    cudaStream_t stream = nullptr, other = nullptr;
    cudaEvent_t event = nullptr;
    unsigned int flags = 99;
    int priority = 99, nr_calls = 0;
    float milliseconds = 0;
    DO(cudaStreamCreate(&stream));
    DO(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, -1));
    DO(cudaStreamGetFlags(other, &flags));
    DO(cudaStreamGetPriority(other, &priority));
    printf("flags and priority: %u %d\n", flags, priority);
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    LAUNCH(fill<<<8, 128, 0, stream>>>(words, 5));
    DO(cudaEventRecord(event, stream));
    DO(cudaStreamWaitEvent(other, event, 0));
    LAUNCH(scale<unsigned int><<<1, 64, 0, other>>>(words, 3));
    DO(cudaLaunchHostFunc(other, count_call, &nr_calls));
    DO(cudaStreamSynchronize(other));
    say_number("calls", nr_calls);
    say_device_bytes("filled and scaled", words, 4096);
    DO(cudaStreamQuery(stream));
    DO(cudaEventQuery(event));
    DO(cudaEventElapsedTime(&milliseconds, event, event));
    DO(cudaEventDestroy(event));
    DO(cudaStreamDestroy(stream));
    DO(cudaStreamDestroy(other));
}

/* The runtime makes a context current in a thread when a call needs one, and for these it needs none. */
CASE(runtime_thread_begins_with_a_query)
{
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    DO(cudaStreamCreate(&stream));
    DO(cudaEventCreate(&event));
    DO(cudaEventRecord(event, stream));
    DO(cudaStreamSynchronize(stream));
    std::thread([event] { DO(cudaEventQuery(event)); }).join();
    std::thread([event] { DO(cudaEventSynchronize(event)); }).join();
    std::thread([stream] { DO(cudaStreamQuery(stream)); }).join();
    std::thread([event, stream] { DO(cudaEventRecord(event, stream)); }).join();
    std::thread([stream] { DO(cudaStreamSynchronize(stream)); }).join();
    std::thread([event] {
        void *pinned = nullptr;
        DO(cudaEventQuery(event));
        DO(cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault));
        DO(cudaFreeHost(pinned));
    }).join();
    std::thread([event] { DO(cudaEventDestroy(event)); }).join();
    std::thread([stream] { DO(cudaStreamDestroy(stream)); }).join();
}

CASE(runtime_graph)
{
    unsigned int *words = device_words(1024, 0);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStream_t stream = nullptr;
    DO(cudaStreamCreate(&stream));
    if (DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) != cudaSuccess) {
        return;
    }
    LAUNCH(fill<<<8, 128, 0, stream>>>(words, 5));
    DO(cudaStreamEndCapture(stream, &graph));
    DO(cudaGraphInstantiate(&executable, graph, 0));
    DO(cudaGraphLaunch(executable, stream));
    DO(cudaStreamSynchronize(stream));
    say_device_bytes("filled", words, 4096);
}

static __global__ void linger_and_write(volatile unsigned int *word, unsigned int value)
{
    const long long begin = clock64();
    while (clock64() - begin < 3000000) {
    }
    *word = value;
}

/* Events that a launch records itself are waited for by other streams, and here. */
CASE(runtime_launch_with_events)
{
    unsigned int *words = device_words(64, 0), *pinned = nullptr;
    cudaStream_t stream, other;
    cudaEvent_t event, completion;
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&completion, cudaEventDisableTiming);
    cudaMallocHost(&pinned, 4);
    config.gridDim = config.blockDim = dim3(1);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    attributes[0].id = cudaLaunchAttributeProgrammaticEvent;
    attributes[0].val.programmaticEvent.event = event;
    attributes[1].id = cudaLaunchAttributePriority;
    for (unsigned int value = 1; value < 4; value++) {
        *pinned = 0;
        DO(cudaLaunchKernelEx(&config, linger_and_write, (volatile unsigned int *)words, value));
        DO(cudaStreamWaitEvent(other, event, 0));
        DO(cudaEventSynchronize(event));
        DO(cudaEventQuery(event));
        DO(cudaStreamWaitEvent(stream, event, 0));
        DO(cudaMemcpyAsync(pinned, words, 4, cudaMemcpyDeviceToHost, stream));
        DO(cudaStreamSynchronize(other));
        DO(cudaStreamSynchronize(stream));
        say_number("seen behind the kernel", *pinned);
    }
    attributes[0].id = cudaLaunchAttributeLaunchCompletionEvent;
    attributes[0].val.launchCompletionEvent.event = completion;
    DO(cudaLaunchKernelEx(&config, linger_and_write, (volatile unsigned int *)words, 9u));
    DO(cudaEventSynchronize(completion));
    DO(cudaStreamSynchronize(stream));
    say_device_bytes("words", words, 256);
}
