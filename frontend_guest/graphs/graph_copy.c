/* The parameters of a copy in a graph: see graph_copy.h. */
#include "graphs/graph_copy.h"

#include "base/handles.h"
#include "copy/box_sides.h"
#include "memory/memory.h"
#include "memory/ranges.h"

static void from_set(CUDA_MEMCPY3D *copy, const struct fgv_copy_side *side)
{
    copy->srcMemoryType = side->type;
    copy->srcHost = (const void *)(uintptr_t)side->host;
    copy->srcDevice = side->device;
    copy->srcArray = side->array;
    copy->srcXInBytes = side->x_bytes;
    copy->srcY = side->y;
    copy->srcZ = side->z;
    copy->srcPitch = side->pitch_bytes;
    copy->srcHeight = side->height;
}

static void to_set(CUDA_MEMCPY3D *copy, const struct fgv_copy_side *side)
{
    copy->dstMemoryType = side->type;
    copy->dstHost = (void *)(uintptr_t)side->host;
    copy->dstDevice = side->device;
    copy->dstArray = side->array;
    copy->dstXInBytes = side->x_bytes;
    copy->dstY = side->y;
    copy->dstZ = side->z;
    copy->dstPitch = side->pitch_bytes;
    copy->dstHeight = side->height;
}

/* Puts a buffer in place of the side. */
static CUresult stage(struct fgv_copy_side *side, const struct fgv_copy_size *size, bool fills, uint64_t was,
                      uint64_t *number)
{
    struct fgv_box_side box;
    CUresult result = size->width_bytes == 0 || size->height == 0 || size->depth == 0
                          ? CUDA_ERROR_INVALID_VALUE
                          : fgv_box_side_check(&box, side, size);
    if (result == CUDA_SUCCESS) {
        result = fgv_staging_put(&box, size, fills, side, was, number);
    }
    if (result == CUDA_SUCCESS) {
        *side = (struct fgv_copy_side){.type = CU_MEMORYTYPE_HOST,
                                       .host = box.memory.address,
                                       .pitch_bytes = box.pitch_bytes,
                                       .height = box.plane_rows};
    }
    return result;
}

static bool is_memory_type(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           type == CU_MEMORYTYPE_UNIFIED;
}

/* Of device memory: whether the side leaves what the program allocated, which the driver need not know. */
static bool overruns(const struct fgv_copy_side *side, const struct fgv_copy_size *size)
{
    if (size->width_bytes == 0 || size->height == 0 || size->depth == 0) {
        return false; /* the driver says what it thinks of that */
    }
    const uint64_t nr_rows = (side->z + size->depth - 1) * side->height + side->y + size->height - 1;
    const uint64_t bytes = nr_rows * side->pitch_bytes + side->x_bytes + size->width_bytes;
    return fgv_memory_overruns(side->device, 1, bytes, 1, 0);
}

/* Where the memory is is the guest's knowledge: for the host there is the heap, and the device. */
static CUresult side_prepare(struct fgv_copy_side *side, const struct fgv_copy_size *size, bool fills, uint64_t was,
                             uint64_t *number)
{
    struct fgv_range range;
    const uint64_t address = side->type == CU_MEMORYTYPE_HOST ? side->host : side->device;
    if (!is_memory_type(side->type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        return fgv_handle_check(FGV_HANDLE_ARRAY, fgv_handle_number(side->array));
    }
    const enum fgv_memory_kind kind = fgv_memory_find(address, &range) ? range.kind : FGV_MEMORY_PAGEABLE;
    if (fgv_memory_is_shared(kind)) {
        side->type = CU_MEMORYTYPE_HOST;
        side->host = address;
        return CUDA_SUCCESS;
    }
    if (!fgv_memory_is_device(kind)) {
        return side->type == CU_MEMORYTYPE_DEVICE ? CUDA_ERROR_INVALID_VALUE : stage(side, size, fills, was, number);
    }
    if (side->type == CU_MEMORYTYPE_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->type = CU_MEMORYTYPE_DEVICE;
    side->device = address;
    return overruns(side, size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult fgv_graph_copy_prepare(CUDA_MEMCPY3D *copy, const CUDA_MEMCPY3D *was, struct fgv_staging *staging)
{
    const struct fgv_copy_size size = {.width_bytes = copy->WidthInBytes, .height = copy->Height, .depth = copy->Depth};
    struct fgv_copy_side from = fgv_copy_source(copy), to = fgv_copy_destination(copy);
    *staging = (struct fgv_staging){0};
    CUresult result = side_prepare(&from, &size, true, was ? fgv_copy_source(was).host : 0, &staging->fill);
    if (result == CUDA_SUCCESS) {
        result = side_prepare(&to, &size, false, was ? fgv_copy_destination(was).host : 0, &staging->drain);
    }
    if (result != CUDA_SUCCESS) {
        fgv_staging_drop(staging);
        *staging = (struct fgv_staging){0};
        return result;
    }
    from_set(copy, &from);
    to_set(copy, &to);
    return CUDA_SUCCESS;
}

void fgv_graph_copy_restore(CUDA_MEMCPY3D *copy, const struct fgv_staging *staging)
{
    struct fgv_copy_side said;
    if (fgv_staging_said(staging->fill, &said)) {
        from_set(copy, &said);
    }
    if (fgv_staging_said(staging->drain, &said)) {
        to_set(copy, &said);
    }
}
