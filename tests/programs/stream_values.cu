/*
 * Streams that wait for values in memory: written by another stream, by the program, by a kernel, and in batches. The
 * kernel is launched once before anything waits: loading it, which its first launch may do, may wait for all streams.
 */
#include "driver_calls.h"

__global__ void set(volatile int *where, int what)
{
    *where = what;
}

static int read(CUdeviceptr at)
{
    int value = -1;
    OK(cuMemcpyDtoH(&value, at, sizeof(value)));
    return value;
}

int main()
{
    CHECK(cudaFree(nullptr));
    CUstream waiting, writing;
    OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&writing, CU_STREAM_NON_BLOCKING));
    CUdeviceptr flags, result;
    OK(cuMemAlloc(&flags, 64));
    OK(cuMemAlloc(&result, 64));
    set<<<1, 1>>>((volatile int *)result, 10);
    OK(cuMemsetD32(flags, 0, 16));
    OK(cuMemsetD32(result, 0, 16));
    CHECK(cudaDeviceSynchronize());

    /* Another stream writes, later. What is behind the wait has not run before. */
    OK(cuStreamWaitValue32(waiting, flags, 5, CU_STREAM_WAIT_VALUE_GEQ));
    set<<<1, 1, 0, waiting>>>((volatile int *)result, 11);
    printf("waits: %s\n", name(cuStreamQuery(waiting)));
    OK(cuStreamWriteValue32(writing, flags, 4, 0));
    OK(cuStreamSynchronize(writing));
    printf("4 is not enough: %s\n", name(cuStreamQuery(waiting)));
    set<<<1, 1, 0, writing>>>((volatile int *)flags, 6);
    OK(cuStreamSynchronize(waiting));
    printf("goes on: %d\n", read(result));

    /* The program writes, in pinned memory. */
    volatile unsigned long long *shared;
    CHECK(cudaHostAlloc((void **)&shared, 64, cudaHostAllocMapped));
    *shared = 1;
    CUevent behind;
    OK(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamWaitValue64(waiting, (CUdeviceptr)shared, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(behind, waiting));
    OK(cuStreamWaitEvent(writing, behind, 0));
    set<<<1, 1, 0, writing>>>((volatile int *)result, 12);
    printf("both wait: %s %s\n", name(cuStreamQuery(waiting)), name(cuStreamQuery(writing)));
    *shared = 1ull << 40;
    OK(cuStreamSynchronize(writing));
    printf("goes on: %d\n", read(result));

    CUstreamBatchMemOpParams batch[4] = {};
    batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, flags + 8, {6}, 0, 0};
    batch[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, flags + 8, {2}, CU_STREAM_WAIT_VALUE_AND, 0};
    batch[2].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, flags + 8, {6}, CU_STREAM_WAIT_VALUE_NOR, 0};
    batch[3].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[3].writeValue.address = flags + 16;
    batch[3].writeValue.value64 = 0x100000007ull;
    OK(cuStreamBatchMemOp(waiting, 4, batch, 0));
    OK(cuStreamSynchronize(waiting));
    printf("batch: %d %d %d\n", read(flags + 8), read(flags + 16), read(flags + 20));
    printf("bad flags: %d\n", cuStreamWaitValue32(waiting, flags, 6, 9) != CUDA_SUCCESS); /* it is 6 */
    OK(cuStreamDestroy(waiting));
    OK(cuStreamDestroy(writing));
    return verdict(true);
}
