#include "memory/texture_record.h"

#include <string.h>

#include "memory/memory_map.h"

#define PITCH_ALIGNMENT    32u
#define ADDRESS_ALIGNMENT  512u
#define MAX_PITCHED_WIDTH  131072u
#define MAX_PITCHED_HEIGHT 65000u
#define MAX_PITCH_BYTES    2097120u
#define KNOWN_FLAGS        0x3fu /* an H200 takes those two as well that the interface does not name */

static bool texel_set(struct sgp_texture *texture, CUarray_format format, uint32_t nr_channels)
{
    struct fgv_texel texel;

    texture->nr_channels = (uint8_t)nr_channels;
    texture->channel_bytes = (uint8_t)fgv_channel_bytes(format);
    texture->channel = SGP_CHANNEL_UNSIGNED;
    if (format == CU_AD_FORMAT_HALF || format == CU_AD_FORMAT_FLOAT) {
        texture->channel = SGP_CHANNEL_FLOAT;
    } else if (format == CU_AD_FORMAT_SIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT16 ||
               format == CU_AD_FORMAT_SIGNED_INT32) {
        texture->channel = SGP_CHANNEL_SIGNED;
    }
    if (texture->channel_bytes) {
        return fgv_texel_of(format, nr_channels, &texel);
    }
    /* UNORM_ and SNORM_ name their channels, three of a kind: read as fractions whatever the flags say. */
    uint32_t named, bytes = fgv_packed_bytes(format, &named);
    if (!bytes || named != nr_channels) {
        return false;
    }
    texture->channel_bytes = (uint8_t)(bytes / named);
    texture->channel = format >= CU_AD_FORMAT_SNORM_INT8X1 ? SGP_CHANNEL_SIGNED : SGP_CHANNEL_UNSIGNED;
    texture->is_fraction = true;
    return true;
}

static void level_set(struct sgp_level *level, const struct CUarray_st *array)
{
    bool has_layers = array->descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

    *level = (struct sgp_level){
        .base = array->base,
        .extent = {(uint32_t)array->descriptor.Width, (uint32_t)array->box.rows,
                   has_layers ? 1 : (uint32_t)array->box.slices},
        .pitch_bytes = array->pitch_bytes,
        .slice_bytes = array->slice_bytes,
    };
}

static bool array_set(struct sgp_texture *texture, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    const bool has_layers = descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

    if (has_layers) {
        texture->nr_layers = (uint32_t)descriptor->Depth;
    }
    texture->nr_axes = !descriptor->Height ? 1 : !descriptor->Depth || has_layers ? 2 : 3;
    texture->is_cubemap = descriptor->Flags & CUDA_ARRAY3D_CUBEMAP;
    return texel_set(texture, descriptor->Format, descriptor->NumChannels);
}

CUresult sgp_texture_set_array(struct sgp_texture *texture, CUarray array)
{
    if (!sgp_object_is(array, SGP_ARRAY)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    texture->nr_levels = 1;
    level_set(&texture->levels[0], array);
    return array_set(texture, &array->descriptor) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult mipmap_resource(struct sgp_texture *texture, CUmipmappedArray mipmap)
{
    if (!sgp_object_is(mipmap, SGP_MIPMAPPED_ARRAY)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    texture->nr_levels = mipmap->nr_levels;
    for (uint32_t level = 0; level < mipmap->nr_levels; level++) {
        level_set(&texture->levels[level], mipmap->levels[level]);
    }
    return array_set(texture, &mipmap->descriptor) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As with an H200 nobody looks how much memory there is: what is read behind it is a fault. */
static bool memory_is_ok(struct sgp_texture *texture, CUdeviceptr address, CUarray_format format, uint32_t nr_channels)
{
    return fgv_channel_bytes(format) && texel_set(texture, format, nr_channels) && address % ADDRESS_ALIGNMENT == 0 &&
           sgp_memory_range_ok(address, 1, true, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

static CUresult linear_resource(struct sgp_texture *texture, const struct fgv_resource_linear *linear)
{
    if (!memory_is_ok(texture, linear->devPtr, linear->format, linear->numChannels)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t nr_texels = linear->sizeInBytes / ((uint64_t)texture->channel_bytes * texture->nr_channels);

    if (!nr_texels || nr_texels > SGP_MAX_LINEAR_TEXELS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    texture->is_linear_memory = true;
    texture->nr_axes = 1;
    texture->nr_levels = 1;
    texture->levels[0] =
        (struct sgp_level){.base = (uint8_t *)(uintptr_t)linear->devPtr, .extent = {(uint32_t)nr_texels, 1, 1}};
    return CUDA_SUCCESS;
}

static CUresult pitch_resource(struct sgp_texture *texture, const struct fgv_resource_pitch *pitch)
{
    if (!memory_is_ok(texture, pitch->devPtr, pitch->format, pitch->numChannels) || !pitch->width || !pitch->height ||
        pitch->width > MAX_PITCHED_WIDTH || pitch->height > MAX_PITCHED_HEIGHT ||
        pitch->pitchInBytes > MAX_PITCH_BYTES || pitch->pitchInBytes % PITCH_ALIGNMENT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    texture->nr_axes = 2;
    texture->nr_levels = 1;
    texture->levels[0] = (struct sgp_level){.base = (uint8_t *)(uintptr_t)pitch->devPtr,
                                            .extent = {(uint32_t)pitch->width, (uint32_t)pitch->height, 1},
                                            .pitch_bytes = pitch->pitchInBytes};
    return CUDA_SUCCESS;
}

CUresult sgp_texture_set_resource(struct sgp_texture *texture, const CUDA_RESOURCE_DESC *resource)
{
    if (resource->flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return sgp_texture_set_array(texture, resource->res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return mipmap_resource(texture, resource->res.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR:
        return linear_resource(texture, &resource->res.linear);
    case CU_RESOURCE_TYPE_PITCH2D:
        return pitch_resource(texture, &resource->res.pitch2D);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sgp_texture_set_sampler(struct sgp_texture *texture, const CUDA_TEXTURE_DESC *wanted)
{
    bool is_integer = texture->channel != SGP_CHANNEL_FLOAT && !texture->is_fraction;

    if (wanted->flags & ~KNOWN_FLAGS) {
        return wanted->flags & CU_TRSF_SEAMLESS_CUBEMAP && texture->is_cubemap ? CUDA_ERROR_NOT_SUPPORTED
                                                                               : CUDA_ERROR_INVALID_VALUE;
    }
    if ((unsigned int)wanted->filterMode > CU_TR_FILTER_MODE_LINEAR ||
        (unsigned int)wanted->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_integer && texture->channel_bytes < 4 && !(wanted->flags & CU_TRSF_READ_AS_INTEGER)) {
        texture->is_fraction = true;
    }
    is_integer = texture->channel != SGP_CHANNEL_FLOAT && !texture->is_fraction;
    texture->is_srgb = wanted->flags & CU_TRSF_SRGB && texture->is_fraction && texture->channel_bytes == 1 &&
                       texture->channel == SGP_CHANNEL_UNSIGNED;
    texture->is_normalized = !!(wanted->flags & CU_TRSF_NORMALIZED_COORDINATES);
    texture->is_filtered = wanted->filterMode == CU_TR_FILTER_MODE_LINEAR && !texture->is_linear_memory &&
                           !is_integer; /* whole numbers are not mixed */
    texture->mixes_levels = wanted->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    texture->level_bias = wanted->mipmapLevelBias;
    texture->least_level = wanted->minMipmapLevelClamp;
    texture->greatest_level = wanted->maxMipmapLevelClamp;
    memcpy(texture->border, wanted->borderColor, sizeof(texture->border));
    for (int axis = 0; axis < 3; axis++) {
        CUaddress_mode mode = axis < texture->nr_axes ? wanted->addressMode[axis] : CU_TR_ADDRESS_MODE_CLAMP;

        if ((unsigned int)mode > CU_TR_ADDRESS_MODE_BORDER) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        /* Without normalised coordinates there is nothing to wrap around. */
        if (!texture->is_normalized && (mode == CU_TR_ADDRESS_MODE_WRAP || mode == CU_TR_ADDRESS_MODE_MIRROR)) {
            mode = CU_TR_ADDRESS_MODE_CLAMP;
        }
        texture->address_mode[axis] = (uint8_t)mode;
    }
    return CUDA_SUCCESS;
}

static CUarray_format view_format(CUresourceViewFormat format, uint32_t *nr_channels)
{
    static const CUarray_format formats[] = {
        CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,  CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
        CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT,
    };
    uint32_t step = (uint32_t)format - CU_RES_VIEW_FORMAT_UINT_1X8;

    *nr_channels = 1u << step % 3;
    return formats[step / 3];
}

/* Of a compressed format; 0: it is none. */
static uint32_t block_bytes(CUresourceViewFormat format)
{
    switch (format) {
    case CU_RES_VIEW_FORMAT_UNSIGNED_BC1:
    case CU_RES_VIEW_FORMAT_UNSIGNED_BC4:
    case CU_RES_VIEW_FORMAT_SIGNED_BC4:
        return 8;
    default:
        return (unsigned int)format > CU_RES_VIEW_FORMAT_FLOAT_4X32 &&
                       (unsigned int)format <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7
                   ? 16
                   : 0;
    }
}

/* A view names a format of the same size, and a run of levels and of layers. */
CUresult sgp_texture_set_view(struct sgp_texture *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    uint32_t texel_bytes = (uint32_t)texture->channel_bytes * texture->nr_channels, nr_channels;

    if (texture->is_linear_memory) {
        return CUDA_SUCCESS; /* nothing of it applies */
    }
    if (view->format == CU_RES_VIEW_FORMAT_NONE || (unsigned int)view->format > CU_RES_VIEW_FORMAT_FLOAT_4X32) {
        return block_bytes(view->format) == texel_bytes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    CUarray_format format = view_format(view->format, &nr_channels);
    texture->is_fraction = false;
    if (!texel_set(texture, format, nr_channels) ||
        (uint32_t)texture->channel_bytes * texture->nr_channels != texel_bytes ||
        view->width != texture->levels[0].extent[0]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (view->firstMipmapLevel > view->lastMipmapLevel || view->firstMipmapLevel >= texture->nr_levels ||
        view->firstLayer > view->lastLayer || (view->firstLayer && view->firstLayer >= texture->nr_layers)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t end_level =
        view->lastMipmapLevel < texture->nr_levels ? view->lastMipmapLevel + 1 : texture->nr_levels;
    texture->nr_levels = end_level - view->firstMipmapLevel;
    memmove(texture->levels, &texture->levels[view->firstMipmapLevel], texture->nr_levels * sizeof(*texture->levels));
    for (uint32_t level = 0; level < texture->nr_levels; level++) {
        texture->levels[level].base += view->firstLayer * texture->levels[level].slice_bytes;
    }
    if (texture->nr_layers) {
        const uint32_t end_layer = view->lastLayer < texture->nr_layers ? view->lastLayer + 1 : texture->nr_layers;

        texture->nr_layers = end_layer - view->firstLayer;
    }
    return CUDA_SUCCESS;
}
