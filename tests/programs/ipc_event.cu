/* An event in two processes: one waits for the other's kernel, and the other way round. */
#include "two_processes.h"

__global__ void until(volatile int *flag)
{
    while (*flag == 0) {
    }
}

__global__ void set(int *out, int value)
{
    *out = value;
}

static void exporter(const Other &other)
{
    cudaEvent_t event, plain, own;
    cudaIpcEventHandle_t handle;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
    std::printf("with times: %s\n", said(cudaEventCreateWithFlags(&own, cudaEventInterprocess)));
    std::printf("an event that is nobody else's: %s\n", said(cudaIpcGetEventHandle(&handle, plain)));
    CHECK(cudaIpcGetEventHandle(&handle, event));
    std::printf("opened where it is: %s\n", said(cudaIpcOpenEventHandle(&own, handle)));
    std::printf("before it is recorded: %s\n", said(cudaEventQuery(event)));
    int *flag;
    CHECK(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped));
    *flag = 0;
    until<<<1, 1>>>(flag);
    CHECK(cudaEventRecord(event));
    other.tell(handle);
    other.wait();
    std::printf("while the kernel runs: %s\n", said(cudaEventQuery(event)));
    *(volatile int *)flag = 1;
    CHECK(cudaEventSynchronize(event));
    std::printf("after it: %s\n", said(cudaEventQuery(event)));
    other.go_on();
    other.wait();
    CHECK(cudaEventSynchronize(event));
    std::printf("recorded by the other: %s\n", said(cudaEventQuery(event)));
    other.go_on();
    other.wait();
    die("dies with an event that the other has open");
}

static bool importer(const Other &other)
{
    const cudaIpcEventHandle_t handle = other.hear<cudaIpcEventHandle_t>();
    cudaIpcEventHandle_t rubbish = {};
    cudaEvent_t event, again, behind;
    cudaStream_t stream;
    cudaFuncAttributes attributes;
    int *out, value = 0;
    CHECK(cudaMalloc(&out, sizeof(int)));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming));
    std::printf("zeros: %s\n", said(cudaIpcOpenEventHandle(&event, rubbish)));
    std::memset(&rubbish, 0x5a, sizeof(rubbish));
    std::printf("rubbish: %s\n", said(cudaIpcOpenEventHandle(&event, rubbish)));
    CHECK(cudaIpcOpenEventHandle(&event, handle));
    CHECK(cudaIpcOpenEventHandle(&again, handle));
    std::printf("opened twice it is another: %d\n", event != again);
    std::printf("passed on: %s\n", said(cudaIpcGetEventHandle(&rubbish, event)));
    std::printf("while the kernel runs: %s %s\n", said(cudaEventQuery(event)), said(cudaEventQuery(again)));
    CHECK(cudaFuncGetAttributes(&attributes, set)); /* its code is loaded, which would wait for what waits */
    CHECK(cudaStreamWaitEvent(stream, event));
    set<<<1, 1, 0, stream>>>(out, 77);
    CHECK(cudaEventRecord(behind, stream));
    std::printf("what waits: %s\n", said(cudaStreamQuery(stream)));
    other.go_on();
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventSynchronize(behind));
    CHECK(cudaMemcpy(&value, out, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("after it: %s %s %d\n", said(cudaEventQuery(event)), said(cudaStreamQuery(stream)), value);
    other.wait();
    set<<<1, 1, 0, stream>>>(out, 78);
    CHECK(cudaEventRecord(event, stream));
    other.go_on();
    other.wait();
    CHECK(cudaEventDestroy(again));
    other.go_on();
    std::printf("the other is gone: %d\n", other.is_gone());
    std::printf("its event: %s\n", said(cudaEventQuery(event)));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventDestroy(event));
    std::printf("after all: %s\n", said(cudaDeviceSynchronize()));
    return true;
}

int main(int argc, char **argv)
{
    return two_processes(argc, argv, importer, exporter);
}
