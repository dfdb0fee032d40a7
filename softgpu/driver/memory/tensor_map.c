/* Tensor maps: descriptors that a device of capability 9.0 copies by. This one is of capability 8.0. */
#include "base/driver.h"
#include "cuda_api/prototypes.h"

static CUresult refuse(void)
{
    CUresult result = sgp_enter_driver();

    return result ? result : sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
}

SGP_EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                           cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                           const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
                                           const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                           CUtensorMapFloatOOBfill oobFill)
{
    (void)tensorMap, (void)tensorDataType, (void)tensorRank, (void)globalAddress, (void)globalDim, (void)globalStrides;
    (void)boxDim, (void)elementStrides, (void)interleave, (void)swizzle, (void)l2Promotion, (void)oobFill;
    return refuse();
}

SGP_EXPORT CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                            cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                            const cuuint64_t *globalStrides, const int *pixelBoxLowerCorner,
                                            const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
                                            cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
                                            CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                            CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    (void)tensorMap, (void)tensorDataType, (void)tensorRank, (void)globalAddress, (void)globalDim, (void)globalStrides;
    (void)pixelBoxLowerCorner, (void)pixelBoxUpperCorner, (void)channelsPerPixel, (void)pixelsPerColumn;
    (void)elementStrides, (void)interleave, (void)swizzle, (void)l2Promotion, (void)oobFill;
    return refuse();
}

SGP_EXPORT CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                                cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                                const cuuint64_t *globalStrides, int pixelBoxLowerCornerWidth,
                                                int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
                                                cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
                                                CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                                CUtensorMapFloatOOBfill oobFill)
{
    (void)tensorMap, (void)tensorDataType, (void)tensorRank, (void)globalAddress, (void)globalDim, (void)globalStrides;
    (void)pixelBoxLowerCornerWidth, (void)pixelBoxUpperCornerWidth, (void)channelsPerPixel, (void)pixelsPerColumn;
    (void)elementStrides, (void)interleave, (void)mode, (void)swizzle, (void)l2Promotion, (void)oobFill;
    return refuse();
}

SGP_EXPORT CUresult cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
    (void)tensorMap, (void)globalAddress;
    return refuse();
}
