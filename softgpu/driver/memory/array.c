/*
 * Arrays and mipmapped arrays. A level of a mipmapped array is an array of its own in the same memory, and lives as
 * long as the whole. Formats are those of texels; blocks (BC1 to BC7) are not served.
 */
#include "memory/array.h"

#include <stdlib.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

#define ROW_ALIGNMENT_BYTES   64u
#define LEVEL_ALIGNMENT_BYTES 512u
#define FACES                 6u
#define SERVED_FLAGS                                                                                                   \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |           \
     CUDA_ARRAY3D_COLOR_ATTACHMENT)

static bool is_within(const CUDA_ARRAY3D_DESCRIPTOR *array, uint64_t width, uint64_t height, uint64_t depth)
{
    return array->Width <= width && array->Height <= height && array->Depth <= depth;
}

/* The shapes there are, each with the bounds that the device's attributes tell. */
static bool is_shape(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    bool is_layered = array->Flags & CUDA_ARRAY3D_LAYERED;

    if (!array->Width) {
        return false;
    }
    if (array->Flags & CUDA_ARRAY3D_CUBEMAP) {
        return array->Width == array->Height && array->Depth && array->Depth % FACES == 0 &&
               (is_layered || array->Depth == FACES) && is_within(array, 32768, 32768, 2046);
    }
    if (is_layered) {
        return array->Depth && is_within(array, 32768, 32768, 2048);
    }
    if (array->Depth) {
        return array->Height && is_within(array, 16384, 16384, 16384);
    }
    return array->Height ? is_within(array, 131072, 65536, 0) : is_within(array, 131072, 0, 0);
}

static CUresult descriptor_check(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    struct fgv_texel texel;

    if (!fgv_texel_of(array->Format, array->NumChannels, &texel) || !is_shape(array)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return texel.edge != 1 || (array->Flags & ~(unsigned int)SERVED_FLAGS) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *mipmap, uint32_t level)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = *mipmap;

    descriptor.Width = fgv_level_extent(mipmap->Width, level);
    descriptor.Height = fgv_level_extent(mipmap->Height, level);
    if (!(mipmap->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))) {
        descriptor.Depth = fgv_level_extent(mipmap->Depth, level);
    }
    return descriptor;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Lays an array out; the bytes it takes. A checked descriptor is far from overflowing. */
static uint64_t lay_out(struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    array->descriptor = *descriptor;
    fgv_array_box_of(descriptor, 0, &array->box);
    array->pitch_bytes = round_up(array->box.row_bytes, ROW_ALIGNMENT_BYTES);
    array->slice_bytes = array->pitch_bytes * array->box.rows;
    return array->slice_bytes * array->box.slices;
}

static void record_destroy(void *object)
{
    free(object);
}

static struct CUarray_st *record_new(struct CUctx_st *context)
{
    struct CUarray_st *array = calloc(1, sizeof(*array));

    if (!array || !sgp_object_add(array, SGP_ARRAY, record_destroy)) {
        free(array);
        return NULL;
    }
    array->object.context = context;
    return array;
}

static void record_delete(void *record)
{
    sgp_object_remove(record);
    sgp_object_release(record);
}

static void memory_delete(const uint8_t *base)
{
    struct sgp_allocation *allocation = sgp_memory_find((uintptr_t)base);

    if (allocation && allocation->start == (uintptr_t)base && allocation->kind == SGP_MEMORY_ARRAY) {
        sgp_memory_delete(allocation);
    }
}

SGP_EXPORT CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    struct CUctx_st *context;
    struct CUarray_st *array;
    void *memory;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    result = pHandle && pAllocateArray ? descriptor_check(pAllocateArray) : CUDA_ERROR_INVALID_VALUE;
    if (result) {
        return sgp_leave(result);
    }
    array = record_new(context);
    if (!array) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = sgp_memory_new(context, lay_out(array, pAllocateArray), SGP_MEMORY_ARRAY, &memory);
    if (result) {
        record_delete(array);
        return sgp_leave(result);
    }
    array->base = memory;
    array->next = context->arrays;
    context->arrays = array;
    *pHandle = array;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {0};

    if (!pAllocateArray) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    descriptor.Width = pAllocateArray->Width;
    descriptor.Height = pAllocateArray->Height;
    descriptor.Format = pAllocateArray->Format;
    descriptor.NumChannels = pAllocateArray->NumChannels;
    return cuArray3DCreate_v2(pHandle, &descriptor);
}

SGP_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(hArray, &context);

    if (result) {
        return result;
    }
    if (!sgp_object_is(hArray, SGP_ARRAY)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!pArrayDescriptor) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pArrayDescriptor = hArray->descriptor;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    CUresult result = pArrayDescriptor ? cuArray3DGetDescriptor_v2(&descriptor, hArray) : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = descriptor.Width,
                                                    .Height = descriptor.Height,
                                                    .Format = descriptor.Format,
                                                    .NumChannels = descriptor.NumChannels};
    }
    return result;
}

SGP_EXPORT CUresult cuArrayDestroy(CUarray hArray)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(hArray, &context);

    if (result) {
        return result;
    }
    if (!sgp_object_is(hArray, SGP_ARRAY) || hArray->mipmap) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    context = hArray->object.context;
    sgp_object_keep(context);
    sgp_queue_drain(context); /* a kernel may still read it; others run meanwhile */
    for (struct CUarray_st **link = &context->arrays; *link; link = &(*link)->next) {
        if (*link == hArray) {
            *link = hArray->next;
            memory_delete(hArray->base);
            record_delete(hArray);
            break;
        }
    }
    result = context->error;
    sgp_object_release(context);
    return sgp_leave(result);
}

/* Only arrays without memory have requirements, and none is made here. */
SGP_EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array,
                                                 CUdevice device)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(array, &context);

    (void)memoryRequirements;
    (void)device;
    if (result) {
        return result;
    }
    return sgp_leave(sgp_object_is(array, SGP_ARRAY) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
}

/* ---- mipmapped arrays ---- */

static void mipmap_records_delete(struct CUmipmappedArray_st *mipmap)
{
    for (uint32_t level = 0; level < mipmap->nr_levels; level++) {
        if (mipmap->levels[level]) {
            record_delete(mipmap->levels[level]);
        }
    }
    record_delete(mipmap);
}

/* The levels of a new mipmapped array, each at its offset; false without memory. */
static bool levels_new(struct CUmipmappedArray_st *mipmap, uint64_t offsets[SGP_MAX_LEVELS], uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t level = 0; level < mipmap->nr_levels; level++) {
        CUDA_ARRAY3D_DESCRIPTOR descriptor = level_of(&mipmap->descriptor, level);

        mipmap->levels[level] = record_new(mipmap->object.context);
        if (!mipmap->levels[level]) {
            return false;
        }
        mipmap->levels[level]->mipmap = mipmap;
        offsets[level] = *bytes;
        *bytes += round_up(lay_out(mipmap->levels[level], &descriptor), LEVEL_ALIGNMENT_BYTES);
    }
    return true;
}

SGP_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                           const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                           unsigned int numMipmapLevels)
{
    struct CUmipmappedArray_st *mipmap;
    struct CUctx_st *context;
    uint64_t offsets[SGP_MAX_LEVELS], bytes;
    uint32_t most;
    void *memory;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    result = pHandle && pMipmappedArrayDesc && numMipmapLevels ? descriptor_check(pMipmappedArrayDesc)
                                                               : CUDA_ERROR_INVALID_VALUE;
    if (result) {
        return sgp_leave(result);
    }
    mipmap = calloc(1, sizeof(*mipmap));
    if (!mipmap || !sgp_object_add(mipmap, SGP_MIPMAPPED_ARRAY, record_destroy)) {
        free(mipmap);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    most = fgv_array_max_levels(pMipmappedArrayDesc);
    mipmap->object.context = context;
    mipmap->descriptor = *pMipmappedArrayDesc;
    mipmap->nr_levels = numMipmapLevels < most ? numMipmapLevels : most;
    result = levels_new(mipmap, offsets, &bytes) ? sgp_memory_new(context, bytes, SGP_MEMORY_ARRAY, &memory)
                                                 : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        mipmap_records_delete(mipmap);
        return sgp_leave(result);
    }
    mipmap->base = memory;
    for (uint32_t level = 0; level < mipmap->nr_levels; level++) {
        mipmap->levels[level]->base = mipmap->base + offsets[level];
    }
    mipmap->next = context->mipmaps;
    context->mipmaps = mipmap;
    *pHandle = mipmap;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(hMipmappedArray, &context);

    if (result) {
        return result;
    }
    if (!sgp_object_is(hMipmappedArray, SGP_MIPMAPPED_ARRAY)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!pLevelArray || level >= hMipmappedArray->nr_levels) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pLevelArray = hMipmappedArray->levels[level];
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(hMipmappedArray, &context);

    if (result) {
        return result;
    }
    if (!sgp_object_is(hMipmappedArray, SGP_MIPMAPPED_ARRAY)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    context = hMipmappedArray->object.context;
    sgp_object_keep(context);
    sgp_queue_drain(context);
    for (struct CUmipmappedArray_st **link = &context->mipmaps; *link; link = &(*link)->next) {
        if (*link == hMipmappedArray) {
            *link = hMipmappedArray->next;
            memory_delete(hMipmappedArray->base);
            mipmap_records_delete(hMipmappedArray);
            break;
        }
    }
    result = context->error;
    sgp_object_release(context);
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                                          CUmipmappedArray mipmap, CUdevice device)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(mipmap, &context);

    (void)memoryRequirements;
    (void)device;
    if (result) {
        return result;
    }
    return sgp_leave(sgp_object_is(mipmap, SGP_MIPMAPPED_ARRAY) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
}

void sgp_array_delete_context(struct CUctx_st *context)
{
    while (context->arrays) {
        struct CUarray_st *array = context->arrays;

        context->arrays = array->next;
        record_delete(array);
    }
    while (context->mipmaps) {
        struct CUmipmappedArray_st *mipmap = context->mipmaps;

        context->mipmaps = mipmap->next;
        mipmap_records_delete(mipmap);
    }
}
