/* Images that are none, through the driver API. */
#include <cstring>
#include <cuda.h>

#include "check.h"

static const char *name(CUresult result)
{
    const char *text = "?";
    cuGetErrorName(result, &text);
    return text;
}

int main()
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        return verdict(false);
    }
    static char garbage[4096];
    std::memset(garbage, 0xa5, sizeof(garbage) - 1);
    CUresult from_garbage = cuModuleLoadData(&module, garbage);
    CUresult from_text = cuModuleLoadData(&module, "this is not PTX at all\n");
    CUresult from_empty = cuModuleLoadData(&module, "");
    CUresult from_null = cuModuleLoadData(&module, nullptr);
    const char *nonsense = ".version 8.0\n.target sm_75\n.address_size 64\nnonsense here;\n";
    CUresult from_ptx = cuModuleLoadData(&module, nonsense);
    std::printf("garbage: %s\ntext: %s\nempty: %s\n", name(from_garbage), name(from_text), name(from_empty));
    std::printf("null: %s\nnonsense in PTX: %s\n", name(from_null), name(from_ptx));
    bool is_right = from_garbage == CUDA_ERROR_INVALID_IMAGE && from_text == CUDA_ERROR_INVALID_IMAGE &&
                    from_empty == CUDA_ERROR_INVALID_IMAGE && from_null == CUDA_ERROR_INVALID_VALUE &&
                    from_ptx == CUDA_ERROR_INVALID_PTX;
    CUresult after = cuCtxSynchronize(); /* no bad image hurts the context */
    std::printf("synchronize afterwards: %s\n", name(after));
    cuDevicePrimaryCtxRelease(device);
    return verdict(is_right && after == CUDA_SUCCESS);
}
