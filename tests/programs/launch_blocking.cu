/*
 * CUDA_LAUNCH_BLOCKING: a launch returns when its kernel has ended, and with its error. The program sets it itself,
 * before it uses the device.
 */
#include <cstdlib>

#include "check.h"

__global__ void set_late(volatile int *flag)
{
    const long long begin = clock64();
    while (clock64() - begin < 50000000) {
    }
    *flag = 1;
}

__global__ void write_far(int *nowhere)
{
    *nowhere = 1;
}

int main()
{
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    int *flag;
    CHECK(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped));
    *flag = 0;
    set_late<<<1, 1>>>(flag);
    CHECK(cudaGetLastError());
    bool has_ended = *(volatile int *)flag != 0;
    printf("behind the launch the kernel has %s\n", has_ended ? "ended" : "not ended");

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    set_late<<<1, 1, 0, stream>>>(flag);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));

    write_far<<<1, 1>>>(reinterpret_cast<int *>(8));
    cudaError_t error = cudaGetLastError();
    printf("a launch that faults: %s\n", cudaGetErrorName(error));
    return verdict(has_ended && error == cudaErrorIllegalAddress);
}
