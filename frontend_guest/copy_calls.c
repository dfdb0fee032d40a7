/*
 * The calls that copy boxes, each brought into the one form of box.h. What a program says of the sides is checked here:
 * positions within pitches, ends that are numbers, memory and arrays that hold what is copied.
 */
#include "array.h"
#include "box.h"
#include "call.h"
#include "context.h"
#include "cuda_api/array_format.h"
#include "cuda_api/prototypes.h"

/* One side as CUDA's structs describe it. */
struct described {
    CUmemorytype type;
    uint64_t host;
    CUdeviceptr device;
    CUarray array;
    uint64_t x_bytes, y, z;
    uint64_t pitch_bytes;
    uint64_t height;
};

struct extent {
    uint64_t width_bytes, height, depth;
};

static bool fits(uint64_t at, uint64_t extent, uint64_t end)
{
    return at <= end && extent <= end - at;
}

static CUresult side_of_array(struct fgv_box_side *side, const struct described *said, const struct extent *extent)
{
    struct fgv_array_box box;
    const struct fgv_array *array = fgv_array_find(said->array);
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!fgv_array_box_of(&array->descriptor, 0, &box) || !fits(said->x_bytes, extent->width_bytes, box.row_bytes) ||
        !fits(said->y, extent->height, box.rows) || !fits(said->z, extent->depth, box.slices))
        return CUDA_ERROR_INVALID_VALUE;
    *side = (struct fgv_box_side){.is_array = true,
                                  .array = (uint64_t)(uintptr_t)said->array,
                                  .x_bytes = said->x_bytes,
                                  .y = said->y,
                                  .z = said->z};
    return CUDA_SUCCESS;
}

/* The offset of the first byte and the bytes from there to the last; false: no such numbers. */
static bool span_of(const struct described *said, const struct extent *extent, uint64_t *start, uint64_t *bytes)
{
    uint64_t rows, row_bytes, first_row;
    return !__builtin_mul_overflow(said->z, said->height, &first_row) &&
           !__builtin_add_overflow(first_row, said->y, &first_row) &&
           !__builtin_mul_overflow(first_row, said->pitch_bytes, start) &&
           !__builtin_add_overflow(*start, said->x_bytes, start) &&
           !__builtin_mul_overflow(extent->depth - 1, said->height, &rows) &&
           !__builtin_add_overflow(rows, extent->height - 1, &rows) &&
           !__builtin_mul_overflow(rows, said->pitch_bytes, &row_bytes) &&
           !__builtin_add_overflow(row_bytes, extent->width_bytes, bytes);
}

static CUresult side_of_memory(struct fgv_box_side *side, const struct described *said, const struct extent *extent)
{
    uint64_t start, bytes, end;
    uint64_t base = said->type == CU_MEMORYTYPE_HOST ? said->host : said->device;
    bool is_one_row = extent->height == 1 && extent->depth == 1 && said->y == 0 && said->z == 0;
    if (base == 0 || (!is_one_row && !fits(said->x_bytes, extent->width_bytes, said->pitch_bytes)) ||
        (extent->depth > 1 && !fits(said->y, extent->height, said->height)) || !span_of(said, extent, &start, &bytes) ||
        __builtin_add_overflow(base, start, &base) || __builtin_add_overflow(base, bytes, &end))
        return CUDA_ERROR_INVALID_VALUE;
    *side = (struct fgv_box_side){.pitch_bytes = said->pitch_bytes, .slice_rows = said->height};
    CUresult result = fgv_side_find(&side->memory, base, bytes);
    bool is_known = fgv_memory_is_device(side->memory.kind) || fgv_memory_is_shared(side->memory.kind);
    return result == CUDA_SUCCESS && said->type == CU_MEMORYTYPE_DEVICE && !is_known ? CUDA_ERROR_INVALID_VALUE
                                                                                     : result;
}

static CUresult side_of(struct fgv_box_side *side, const struct described *said, const struct extent *extent)
{
    switch (said->type) {
    case CU_MEMORYTYPE_ARRAY:
        return side_of_array(side, said, extent);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return side_of_memory(side, said, extent);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy(const struct described *to, const struct described *from, const struct extent *extent,
                     CUstream stream, bool waits)
{
    struct fgv_box box = {.width_bytes = extent->width_bytes, .height = extent->height, .depth = extent->depth};
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS || extent->width_bytes == 0 || extent->height == 0 || extent->depth == 0)
        return result;
    result = side_of(&box.to, to, extent);
    if (result == CUDA_SUCCESS)
        result = side_of(&box.from, from, extent);
    return result == CUDA_SUCCESS ? fgv_box_copy(&box, stream, waits) : result;
}

/* ---- two dimensions ---- */

static CUresult copy_2d(const CUDA_MEMCPY2D *said, CUstream stream, bool waits)
{
    if (said == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct described to = {.type = said->dstMemoryType,
                                 .host = (uint64_t)(uintptr_t)said->dstHost,
                                 .device = said->dstDevice,
                                 .array = said->dstArray,
                                 .x_bytes = said->dstXInBytes,
                                 .y = said->dstY,
                                 .pitch_bytes = said->dstPitch};
    const struct described from = {.type = said->srcMemoryType,
                                   .host = (uint64_t)(uintptr_t)said->srcHost,
                                   .device = said->srcDevice,
                                   .array = said->srcArray,
                                   .x_bytes = said->srcXInBytes,
                                   .y = said->srcY,
                                   .pitch_bytes = said->srcPitch};
    const struct extent extent = {.width_bytes = said->WidthInBytes, .height = said->Height, .depth = 1};
    return copy(&to, &from, &extent, stream, waits);
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

static CUresult copy_3d(const CUDA_MEMCPY3D *said, CUstream stream, bool waits)
{
    if (said == NULL || said->srcLOD != 0 || said->dstLOD != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct described to = {.type = said->dstMemoryType,
                                 .host = (uint64_t)(uintptr_t)said->dstHost,
                                 .device = said->dstDevice,
                                 .array = said->dstArray,
                                 .x_bytes = said->dstXInBytes,
                                 .y = said->dstY,
                                 .z = said->dstZ,
                                 .pitch_bytes = said->dstPitch,
                                 .height = said->dstHeight};
    const struct described from = {.type = said->srcMemoryType,
                                   .host = (uint64_t)(uintptr_t)said->srcHost,
                                   .device = said->srcDevice,
                                   .array = said->srcArray,
                                   .x_bytes = said->srcXInBytes,
                                   .y = said->srcY,
                                   .z = said->srcZ,
                                   .pitch_bytes = said->srcPitch,
                                   .height = said->srcHeight};
    const struct extent extent = {.width_bytes = said->WidthInBytes, .height = said->Height, .depth = said->Depth};
    return copy(&to, &from, &extent, stream, waits);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, false);
}

/* A program sees one device, so both contexts are that device's. */
static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *said, CUstream stream, bool waits)
{
    if (said == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (fgv_context_find(said->srcContext) == NULL || fgv_context_find(said->dstContext) == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
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
    return (struct described){.type = CU_MEMORYTYPE_HOST, .host = (uint64_t)(uintptr_t)memory};
}

static CUresult copy_row(struct described to, struct described from, size_t bytes, CUstream stream, bool waits)
{
    const struct extent extent = {.width_bytes = bytes, .height = 1, .depth = 1};
    return copy(&to, &from, &extent, stream, waits);
}

/* CUDA has no call with a stream for these three, so that their twins are not generated. */
static CUresult own_stream_done(CUresult result)
{
    return result == CUDA_SUCCESS ? cuStreamSynchronize(CU_STREAM_PER_THREAD) : result;
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_device(dstDevice), of_array(srcArray, srcOffset), ByteCount, NULL, true);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return own_stream_done(
        copy_row(of_device(dstDevice), of_array(srcArray, srcOffset), ByteCount, CU_STREAM_PER_THREAD, false));
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_device(srcDevice), ByteCount, NULL, true);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    return own_stream_done(
        copy_row(of_array(dstArray, dstOffset), of_device(srcDevice), ByteCount, CU_STREAM_PER_THREAD, false));
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(of_array(dstArray, dstOffset), of_array(srcArray, srcOffset), ByteCount, NULL, true);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return own_stream_done(
        copy_row(of_array(dstArray, dstOffset), of_array(srcArray, srcOffset), ByteCount, CU_STREAM_PER_THREAD, false));
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
