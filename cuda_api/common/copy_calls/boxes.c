/* The calls that copy boxes, and rows of arrays: see cuda_api/copy_calls.h. */
#include <stddef.h>

#include "cuda_api/prototypes.h"
#include "ops.h"

/* ---- two dimensions ---- */

static CUresult copy_2d(const CUDA_MEMCPY2D *said, CUstream stream, bool waits)
{
    if (!said) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgv_copy_side to = {.type = said->dstMemoryType,
                                     .host = (uint64_t)(uintptr_t)said->dstHost,
                                     .device = said->dstDevice,
                                     .array = said->dstArray,
                                     .x_bytes = said->dstXInBytes,
                                     .y = said->dstY,
                                     .pitch_bytes = said->dstPitch};
    const struct fgv_copy_side from = {.type = said->srcMemoryType,
                                       .host = (uint64_t)(uintptr_t)said->srcHost,
                                       .device = said->srcDevice,
                                       .array = said->srcArray,
                                       .x_bytes = said->srcXInBytes,
                                       .y = said->srcY,
                                       .pitch_bytes = said->srcPitch};
    const struct fgv_copy_size size = {.width_bytes = said->WidthInBytes, .height = said->Height, .depth = 1};
    return fgv_copy_ops_get()->box(&to, &from, &size, stream, waits);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, false);
}

/* ---- three dimensions ---- */

struct fgv_copy_side fgv_copy_source(const CUDA_MEMCPY3D *copy)
{
    return (struct fgv_copy_side){.type = copy->srcMemoryType,
                                  .host = (uint64_t)(uintptr_t)copy->srcHost,
                                  .device = copy->srcDevice,
                                  .array = copy->srcArray,
                                  .x_bytes = copy->srcXInBytes,
                                  .y = copy->srcY,
                                  .z = copy->srcZ,
                                  .pitch_bytes = copy->srcPitch,
                                  .height = copy->srcHeight};
}

struct fgv_copy_side fgv_copy_destination(const CUDA_MEMCPY3D *copy)
{
    return (struct fgv_copy_side){.type = copy->dstMemoryType,
                                  .host = (uint64_t)(uintptr_t)copy->dstHost,
                                  .device = copy->dstDevice,
                                  .array = copy->dstArray,
                                  .x_bytes = copy->dstXInBytes,
                                  .y = copy->dstY,
                                  .z = copy->dstZ,
                                  .pitch_bytes = copy->dstPitch,
                                  .height = copy->dstHeight};
}

static CUresult copy_3d(const CUDA_MEMCPY3D *said, CUstream stream, bool waits)
{
    if (!said || said->srcLOD != 0 || said->dstLOD != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgv_copy_side to = fgv_copy_destination(said), from = fgv_copy_source(said);
    const struct fgv_copy_size size = {.width_bytes = said->WidthInBytes, .height = said->Height, .depth = said->Depth};
    return fgv_copy_ops_get()->box(&to, &from, &size, stream, waits);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, false);
}

/* All memory is reached from one place, so a copy between two contexts is a copy. */
static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *said, CUstream stream, bool waits)
{
    if (!said) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgv_copy_ops_get()->is_context(said->srcContext) || !fgv_copy_ops_get()->is_context(said->dstContext)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const CUDA_MEMCPY3D plain = {.srcXInBytes = said->srcXInBytes,
                                 .srcY = said->srcY,
                                 .srcZ = said->srcZ,
                                 .srcLOD = said->srcLOD,
                                 .srcMemoryType = said->srcMemoryType,
                                 .srcHost = said->srcHost,
                                 .srcDevice = said->srcDevice,
                                 .srcArray = said->srcArray,
                                 .srcPitch = said->srcPitch,
                                 .srcHeight = said->srcHeight,
                                 .dstXInBytes = said->dstXInBytes,
                                 .dstY = said->dstY,
                                 .dstZ = said->dstZ,
                                 .dstLOD = said->dstLOD,
                                 .dstMemoryType = said->dstMemoryType,
                                 .dstHost = said->dstHost,
                                 .dstDevice = said->dstDevice,
                                 .dstArray = said->dstArray,
                                 .dstPitch = said->dstPitch,
                                 .dstHeight = said->dstHeight,
                                 .WidthInBytes = said->WidthInBytes,
                                 .Height = said->Height,
                                 .Depth = said->Depth};
    return copy_3d(&plain, stream, waits);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_peer(pCopy, NULL, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_peer(pCopy, hStream, false);
}

/* ---- one row of an array ---- */

static struct fgv_copy_side of_array(CUarray array, size_t offset)
{
    return (struct fgv_copy_side){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x_bytes = offset};
}

static struct fgv_copy_side of_device(CUdeviceptr address)
{
    return (struct fgv_copy_side){.type = CU_MEMORYTYPE_DEVICE, .device = address};
}

static struct fgv_copy_side of_host(const void *memory)
{
    return (struct fgv_copy_side){.type = CU_MEMORYTYPE_HOST, .host = (uint64_t)(uintptr_t)memory};
}

static CUresult copy_row(struct fgv_copy_side to, struct fgv_copy_side from, size_t bytes, CUstream stream, bool waits)
{
    const struct fgv_copy_size size = {.width_bytes = bytes, .height = 1, .depth = 1};
    return fgv_copy_ops_get()->box(&to, &from, &size, stream, waits);
}

/* CUDA has no call with a stream for AtoD, DtoA and AtoA, so that their twins are not generated. */
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_device(dstDevice), of_array(srcArray, srcOffset), ByteCount, NULL, true);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_device(dstDevice), of_array(srcArray, srcOffset), ByteCount, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_device(srcDevice), ByteCount, NULL, true);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_device(srcDevice), ByteCount, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_array(srcArray, srcOffset), ByteCount, NULL, true);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_array(srcArray, srcOffset), ByteCount, CU_STREAM_PER_THREAD,
                    true);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_host(srcHost), ByteCount, NULL, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                              CUstream hStream)
{
    return copy_row(of_array(dstArray, dstOffset), of_host(srcHost), ByteCount, hStream, false);
}

CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_host(dstHost), of_array(srcArray, srcOffset), ByteCount, NULL, true);
}

CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
    return copy_row(of_host(dstHost), of_array(srcArray, srcOffset), ByteCount, hStream, false);
}
