/*
 * Copies and a kernel in one stream while the host polls an event: the caller must get control back before the work is
 * done.
 */
#include "check.h"

__global__ void increment(int *values, int by)
{
    values[blockIdx.x * blockDim.x + threadIdx.x] += by;
}

int main()
{
    const int nr = 1 << 20;
    const size_t bytes = nr * sizeof(int);
    int *host, *device;
    CHECK(cudaMallocHost(&host, bytes));
    CHECK(cudaMalloc(&device, bytes));
    for (int i = 0; i < nr; i++) {
        host[i] = i;
    }
    cudaStream_t stream;
    cudaEvent_t begin, end, unrecorded;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventCreateWithFlags(&unrecorded, cudaEventDisableTiming));
    CHECK(cudaEventQuery(unrecorded)); /* an event never recorded is complete */
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
    increment<<<nr / 256, 256, 0, stream>>>(device, 26);
    CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaEventRecord(end, stream));
    cudaError_t status;
    unsigned long nr_polls = 0;
    do {
        status = cudaEventQuery(end);
        nr_polls++;
    } while (status == cudaErrorNotReady);
    CHECK(status);
    CHECK(cudaStreamQuery(stream));
    float elapsed_ms = -1.0f;
    CHECK(cudaEventElapsedTime(&elapsed_ms, begin, end));
    int nr_wrong = 0;
    for (int i = 0; i < nr; i++) {
        nr_wrong += host[i] != i + 26;
    }
    cudaError_t untimed = cudaEventElapsedTime(&elapsed_ms, begin, unrecorded);
    std::printf("%d elements, %d wrong, polled: %s, timed: %s, event without timing: %s\n", nr, nr_wrong,
                nr_polls > 0 ? "yes" : "no", elapsed_ms >= 0.0f ? "yes" : "no", cudaGetErrorName(untimed));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaEventDestroy(unrecorded));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
    return verdict(nr_wrong == 0 && elapsed_ms >= 0.0f && untimed == cudaErrorInvalidResourceHandle);
}
