/*
 * One array cut into slices, each filled and copied by its own stream, from pinned memory; priorities, waits and a host
 * function.
 */
#include <atomic>

#include "check.h"

__global__ void fill(int *slice, int first, int nr_rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = first + i;
    for (int round = 0; round < nr_rounds; round++) {
        value = value * 3 + 1;
    }
    slice[i] = value;
}

static std::atomic<int> nr_called;

static void called(void *argument)
{
    nr_called += *static_cast<int *>(argument);
}

int main()
{
    const int nr_streams = 4, nr = 1 << 18, nr_slice = nr / nr_streams, nr_rounds = 5;
    int *host, *device, one = 1;
    CHECK(cudaHostAlloc(&host, nr * sizeof(int), cudaHostAllocDefault));
    CHECK(cudaMalloc(&device, nr * sizeof(int)));
    CHECK(cudaMemset(device, 0, nr * sizeof(int)));
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t streams[nr_streams];
    cudaEvent_t filled[nr_streams];
    for (int i = 0; i < nr_streams; i++) {
        int priority = -1000, expected = i % 2 ? greatest : least;
        CHECK(cudaStreamCreateWithPriority(&streams[i], cudaStreamNonBlocking, expected));
        CHECK(cudaStreamGetPriority(streams[i], &priority));
        CHECK(cudaEventCreateWithFlags(&filled[i], cudaEventDisableTiming));
        if (priority != expected) {
            return verdict(false);
        }
    }
    for (int i = 0; i < nr_streams; i++) {
        fill<<<nr_slice / 256, 256, 0, streams[i]>>>(device + i * nr_slice, i * nr_slice, nr_rounds);
        CHECK(cudaEventRecord(filled[i], streams[i]));
        CHECK(cudaLaunchHostFunc(streams[i], called, &one));
    }
    for (int i = 0; i < nr_streams; i++) { /* each slice is copied by the next stream, once it is filled */
        cudaStream_t copier = streams[(i + 1) % nr_streams];
        CHECK(cudaStreamWaitEvent(copier, filled[i], 0));
        CHECK(cudaMemcpyAsync(host + i * nr_slice, device + i * nr_slice, nr_slice * sizeof(int),
                              cudaMemcpyDeviceToHost, copier));
    }
    for (cudaStream_t stream : streams) {
        CHECK(cudaStreamSynchronize(stream));
    }
    int nr_wrong = 0;
    for (int i = 0; i < nr; i++) {
        int expected = i;
        for (int round = 0; round < nr_rounds; round++) {
            expected = int(unsigned(expected) * 3 + 1);
        }
        nr_wrong += host[i] != expected;
    }
    std::printf("%d streams, %d elements, %d wrong, %d host functions ran\n", nr_streams, nr, nr_wrong,
                nr_called.load());
    for (int i = 0; i < nr_streams; i++) {
        CHECK(cudaEventDestroy(filled[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
    return verdict(nr_wrong == 0 && nr_called == nr_streams);
}
