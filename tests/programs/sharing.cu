/* What needs other processes, or another device, or a newer one: how it is refused, and batches of copies. */
#include <cstring>
#include <cuda.h>
#include <vector>

#include "check.h"

static const char *name(CUresult result)
{
    const char *text = nullptr;
    cuGetErrorName(result, &text);
    return text != nullptr ? text : "?";
}

static cudaError_t shared(int has)
{
    return has ? cudaSuccess : cudaErrorNotSupported;
}

/* The same descriptor for the same question, however often it is asked; on a device that has none, the same refusal. */
static bool tensor_maps(CUdeviceptr memory)
{
    alignas(128) CUtensorMap maps[2];
    const cuuint64_t dimensions[2] = {64, 64}, strides[1] = {64 * 4};
    const cuuint32_t box[2] = {32, 8}, steps[2] = {1, 1};
    CUresult results[2];
    for (int i = 0; i < 2; i++) {
        results[i] =
            cuTensorMapEncodeTiled(&maps[i], CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)memory, dimensions, strides,
                                   box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
    printf("tensor map: %s %s\n", name(results[0]), name(results[1]));
    return results[0] != CUDA_SUCCESS || memcmp(&maps[0], &maps[1], sizeof(maps[0])) == 0;
}

int main()
{
    CHECK(cudaFree(nullptr));
    char *memory;
    CHECK(cudaMalloc(&memory, 1 << 16));
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    int has = 0;
    cuPointerGetAttribute(&has, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)memory);
    printf("memory is as announced: %d\n", cudaIpcGetMemHandle(&handle, memory) == shared(has));
    printf("an event that is nobody else's: %d\n", cudaIpcGetEventHandle(&event_handle, event) != cudaSuccess);
    cudaGetLastError();
    int can = -1;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 0));
    printf("peer of itself: %d %s\n", can, cudaGetErrorName(cudaDeviceEnablePeerAccess(0, 0)));
    cudaGetLastError();
    bool is_right = tensor_maps((CUdeviceptr)memory);

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    std::vector<char> from(1 << 12, 5), to(1 << 12, 0);
    CUdeviceptr destinations[2] = {(CUdeviceptr)memory, (CUdeviceptr)(memory + (1 << 12))};
    CUdeviceptr sources[2] = {(CUdeviceptr)from.data(), (CUdeviceptr)memory};
    size_t sizes[2] = {from.size(), from.size()}, first = 0;
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    printf("batch: %s\n", name(cuMemcpyBatchAsync(destinations, sources, sizes, 2, &attributes, &first, 1, stream)));
    CHECK(cudaMemcpyAsync(to.data(), memory + (1 << 12), to.size(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    is_right &= to == from;
    return verdict(is_right);
}
