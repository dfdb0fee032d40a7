/* The names of the sets; the work is in copy.c. */
#include "cuda_api/prototypes.h"
#include "work/copy.h"

SGP_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return sgp_set(dstDevice, 0, uc, 1, N, 1, NULL, false);
}

SGP_EXPORT CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return sgp_set(dstDevice, 0, uc, 1, N, 1, hStream, true);
}

SGP_EXPORT CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                    size_t Height)
{
    return sgp_set(dstDevice, dstPitch, uc, 1, Width, Height, NULL, false);
}

SGP_EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                      size_t Height, CUstream hStream)
{
    return sgp_set(dstDevice, dstPitch, uc, 1, Width, Height, hStream, true);
}

SGP_EXPORT CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return sgp_set(dstDevice, 0, us, 2, N, 1, NULL, false);
}

SGP_EXPORT CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return sgp_set(dstDevice, 0, us, 2, N, 1, hStream, true);
}

SGP_EXPORT CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                     size_t Height)
{
    return sgp_set(dstDevice, dstPitch, us, 2, Width, Height, NULL, false);
}

SGP_EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                       size_t Height, CUstream hStream)
{
    return sgp_set(dstDevice, dstPitch, us, 2, Width, Height, hStream, true);
}

SGP_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return sgp_set(dstDevice, 0, ui, 4, N, 1, NULL, false);
}

SGP_EXPORT CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return sgp_set(dstDevice, 0, ui, 4, N, 1, hStream, true);
}

SGP_EXPORT CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                     size_t Height)
{
    return sgp_set(dstDevice, dstPitch, ui, 4, Width, Height, NULL, false);
}

SGP_EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                       size_t Height, CUstream hStream)
{
    return sgp_set(dstDevice, dstPitch, ui, 4, Width, Height, hStream, true);
}
