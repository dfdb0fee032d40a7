/* The calls that copy boxes, and rows of arrays; the work is in copy.c. */
#include "array.h"
#include "copy.h"
#include "cuda_api/prototypes.h"

/* One side as CUDA's structs describe it. */
struct described {
    CUmemorytype type;
    uintptr_t host;
    CUdeviceptr device;
    CUarray array;
    uint64_t x_bytes, y, z;
    uint64_t pitch_bytes, height;
};

struct extent {
    uint64_t width_bytes, height, depth;
};

/* The same as addresses. */
struct side {
    uintptr_t address;
    bool is_device;
    uint64_t pitch_bytes, slice_bytes;
};

static bool fits(uint64_t at, uint64_t extent, uint64_t end)
{
    return at <= end && extent <= end - at;
}

static CUresult side_of_array(struct side *side, const struct described *said, const struct extent *extent)
{
    const struct CUarray_st *array = said->array;

    if (!sgp_object_is(array, SGP_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!fits(said->x_bytes, extent->width_bytes, array->box.row_bytes) ||
        !fits(said->y, extent->height, array->box.rows) || !fits(said->z, extent->depth, array->box.slices))
        return CUDA_ERROR_INVALID_VALUE;
    *side = (struct side){
        .address = (uintptr_t)array->base + said->z * array->slice_bytes + said->y * array->pitch_bytes + said->x_bytes,
        .is_device = true,
        .pitch_bytes = array->pitch_bytes,
        .slice_bytes = array->slice_bytes,
    };
    return CUDA_SUCCESS;
}

static CUresult side_of_memory(struct side *side, const struct described *said, const struct extent *extent)
{
    bool is_one_row = extent->height == 1 && extent->depth == 1 && !said->y && !said->z;
    uint64_t row, offset;

    *side = (struct side){.address = said->type == CU_MEMORYTYPE_HOST ? said->host : said->device,
                          .is_device = said->type == CU_MEMORYTYPE_DEVICE,
                          .pitch_bytes = said->pitch_bytes};
    if (!side->address || (!is_one_row && !fits(said->x_bytes, extent->width_bytes, said->pitch_bytes)) ||
        (extent->depth > 1 && !fits(said->y, extent->height, said->height)) ||
        __builtin_mul_overflow(said->pitch_bytes, said->height, &side->slice_bytes) ||
        __builtin_mul_overflow(said->z, said->height, &row) || __builtin_add_overflow(row, said->y, &row) ||
        __builtin_mul_overflow(row, said->pitch_bytes, &offset) ||
        __builtin_add_overflow(offset, said->x_bytes, &offset) ||
        __builtin_add_overflow(side->address, offset, &side->address))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult side_of(struct side *side, const struct described *said, const struct extent *extent)
{
    switch (said->type) {
    case CU_MEMORYTYPE_ARRAY:
        return side_of_array(side, said, extent);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return side_of_memory(side, said, extent);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult copy(const struct described *to, const struct described *from, const struct extent *extent,
                     CUstream handle, bool is_async)
{
    struct side destination, source;
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(handle, &context, &stream);

    if (result)
        return result;
    if (!extent->width_bytes || !extent->height || !extent->depth)
        return sgp_leave(CUDA_SUCCESS);
    result = side_of(&destination, to, extent);
    if (!result)
        result = side_of(&source, from, extent);
    if (result)
        return sgp_leave(result);
    struct sgp_box box = {
        .destination = destination.address,
        .source = source.address,
        .destination_is_device = destination.is_device,
        .source_is_device = source.is_device,
        .width = extent->width_bytes,
        .height = extent->height,
        .depth = extent->depth,
        .destination_pitch = destination.pitch_bytes,
        .source_pitch = source.pitch_bytes,
        .destination_slice = destination.slice_bytes,
        .source_slice = source.slice_bytes,
    };
    return sgp_leave(sgp_copy(context, stream, &box, is_async));
}

/* ---- two dimensions ---- */

static CUresult copy_2d(const CUDA_MEMCPY2D *said, CUstream stream, bool is_async)
{
    if (!said)
        return CUDA_ERROR_INVALID_VALUE;
    struct described to = {.type = said->dstMemoryType,
                           .host = (uintptr_t)said->dstHost,
                           .device = said->dstDevice,
                           .array = said->dstArray,
                           .x_bytes = said->dstXInBytes,
                           .y = said->dstY,
                           .pitch_bytes = said->dstPitch};
    struct described from = {.type = said->srcMemoryType,
                             .host = (uintptr_t)said->srcHost,
                             .device = said->srcDevice,
                             .array = said->srcArray,
                             .x_bytes = said->srcXInBytes,
                             .y = said->srcY,
                             .pitch_bytes = said->srcPitch};
    struct extent extent = {.width_bytes = said->WidthInBytes, .height = said->Height, .depth = 1};

    return copy(&to, &from, &extent, stream, is_async);
}

SGP_EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

SGP_EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

SGP_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, true);
}

/* ---- three dimensions ---- */

static CUresult copy_3d(const CUDA_MEMCPY3D *said, CUstream stream, bool is_async)
{
    if (!said || said->srcLOD || said->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    struct described to = {.type = said->dstMemoryType,
                           .host = (uintptr_t)said->dstHost,
                           .device = said->dstDevice,
                           .array = said->dstArray,
                           .x_bytes = said->dstXInBytes,
                           .y = said->dstY,
                           .z = said->dstZ,
                           .pitch_bytes = said->dstPitch,
                           .height = said->dstHeight};
    struct described from = {.type = said->srcMemoryType,
                             .host = (uintptr_t)said->srcHost,
                             .device = said->srcDevice,
                             .array = said->srcArray,
                             .x_bytes = said->srcXInBytes,
                             .y = said->srcY,
                             .z = said->srcZ,
                             .pitch_bytes = said->srcPitch,
                             .height = said->srcHeight};
    struct extent extent = {.width_bytes = said->WidthInBytes, .height = said->Height, .depth = said->Depth};

    return copy(&to, &from, &extent, stream, is_async);
}

SGP_EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, false);
}

SGP_EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, true);
}

/* Every device's memory is in this process: a copy between two is a copy. */
static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *said, CUstream stream, bool is_async)
{
    CUresult result = said ? sgp_enter_driver() : CUDA_ERROR_INVALID_VALUE;

    if (result)
        return result;
    bool are_contexts = sgp_object_is(said->srcContext, SGP_CONTEXT) && sgp_object_is(said->dstContext, SGP_CONTEXT);

    sgp_leave(CUDA_SUCCESS);
    if (!are_contexts)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUDA_MEMCPY3D plain = {.srcXInBytes = said->srcXInBytes,
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

    return copy_3d(&plain, stream, is_async);
}

SGP_EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_peer(pCopy, NULL, false);
}

SGP_EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_peer(pCopy, hStream, true);
}

/* ---- one row of an array ---- */

static struct described of_array(CUarray array, size_t offset)
{
    return (struct described){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x_bytes = offset};
}

static struct described of_device(CUdeviceptr address)
{
    return (struct described){.type = CU_MEMORYTYPE_DEVICE, .device = address};
}

static struct described of_host(const void *memory)
{
    return (struct described){.type = CU_MEMORYTYPE_HOST, .host = (uintptr_t)memory};
}

static CUresult row(struct described to, struct described from, size_t bytes, CUstream stream, bool is_async)
{
    struct extent extent = {.width_bytes = bytes, .height = 1, .depth = 1};

    return copy(&to, &from, &extent, stream, is_async);
}

SGP_EXPORT CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return row(of_device(dstDevice), of_array(srcArray, srcOffset), ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return row(of_device(dstDevice), of_array(srcArray, srcOffset), ByteCount, CU_STREAM_PER_THREAD, false);
}

SGP_EXPORT CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return row(of_array(dstArray, dstOffset), of_device(srcDevice), ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return row(of_array(dstArray, dstOffset), of_device(srcDevice), ByteCount, CU_STREAM_PER_THREAD, false);
}

SGP_EXPORT CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                                    size_t ByteCount)
{
    return row(of_array(dstArray, dstOffset), of_array(srcArray, srcOffset), ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                                         size_t ByteCount)
{
    return row(of_array(dstArray, dstOffset), of_array(srcArray, srcOffset), ByteCount, CU_STREAM_PER_THREAD, false);
}

SGP_EXPORT CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
    return row(of_array(dstArray, dstOffset), of_host(srcHost), ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                                         CUstream hStream)
{
    return row(of_array(dstArray, dstOffset), of_host(srcHost), ByteCount, hStream, true);
}

SGP_EXPORT CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return row(of_host(dstHost), of_array(srcArray, srcOffset), ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                                         CUstream hStream)
{
    return row(of_host(dstHost), of_array(srcArray, srcOffset), ByteCount, hStream, true);
}
