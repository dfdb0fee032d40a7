#include "memory/texture_record.h"

#include <string.h>

#include "memory/memory_map.h"

#define PITCH_ALIGNMENT   32u
#define ADDRESS_ALIGNMENT 16u
#define KNOWN_FLAGS                                                                                                    \
    (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION)

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
    if (descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) {
        texture->nr_layers = (uint32_t)descriptor->Depth;
    }
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

static CUresult linear_resource(struct sgp_texture *texture, const struct fgv_resource_linear *linear)
{
    if (!texel_set(texture, linear->format, linear->numChannels) || linear->devPtr % ADDRESS_ALIGNMENT ||
        !sgp_memory_range_ok(linear->devPtr, linear->sizeInBytes, true)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t nr_texels = linear->sizeInBytes / ((uint64_t)texture->channel_bytes * texture->nr_channels);

    if (!nr_texels || nr_texels > SGP_MAX_LINEAR_TEXELS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    texture->is_linear_memory = true;
    texture->nr_levels = 1;
    texture->levels[0] =
        (struct sgp_level){.base = (uint8_t *)(uintptr_t)linear->devPtr, .extent = {(uint32_t)nr_texels, 1, 1}};
    return CUDA_SUCCESS;
}

static CUresult pitch_resource(struct sgp_texture *texture, const struct fgv_resource_pitch *pitch)
{
    uint64_t bytes, row_bytes;

    if (!texel_set(texture, pitch->format, pitch->numChannels) || pitch->devPtr % ADDRESS_ALIGNMENT || !pitch->width ||
        !pitch->height || pitch->width > 131072 || pitch->height > 65536 || pitch->pitchInBytes % PITCH_ALIGNMENT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    row_bytes = pitch->width * texture->channel_bytes * texture->nr_channels;
    if (pitch->pitchInBytes < row_bytes || __builtin_mul_overflow(pitch->pitchInBytes, pitch->height - 1, &bytes) ||
        __builtin_add_overflow(bytes, row_bytes, &bytes) || !sgp_memory_range_ok(pitch->devPtr, bytes, true)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
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

    if (wanted->flags & ~(unsigned int)KNOWN_FLAGS) {
        return wanted->flags & CU_TRSF_SEAMLESS_CUBEMAP ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    if ((unsigned int)wanted->filterMode > CU_TR_FILTER_MODE_LINEAR ||
        (unsigned int)wanted->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_integer && texture->channel_bytes < 4 && !(wanted->flags & CU_TRSF_READ_AS_INTEGER)) {
        texture->is_fraction = true;
    }
    is_integer = texture->channel != SGP_CHANNEL_FLOAT && !texture->is_fraction;
    if (is_integer && wanted->filterMode == CU_TR_FILTER_MODE_LINEAR) {
        return CUDA_ERROR_INVALID_VALUE; /* whole numbers are not mixed */
    }
    texture->is_srgb = wanted->flags & CU_TRSF_SRGB && texture->is_fraction && texture->channel_bytes == 1 &&
                       texture->channel == SGP_CHANNEL_UNSIGNED;
    texture->is_normalized = !!(wanted->flags & CU_TRSF_NORMALIZED_COORDINATES);
    texture->is_filtered = wanted->filterMode == CU_TR_FILTER_MODE_LINEAR && !texture->is_linear_memory;
    texture->mixes_levels = wanted->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    texture->level_bias = wanted->mipmapLevelBias;
    texture->least_level = wanted->minMipmapLevelClamp;
    texture->greatest_level = wanted->maxMipmapLevelClamp;
    memcpy(texture->border, wanted->borderColor, sizeof(texture->border));
    for (int axis = 0; axis < 3; axis++) {
        CUaddress_mode mode = wanted->addressMode[axis];

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

/* A view names a format of the same size, and a run of levels and of layers. */
CUresult sgp_texture_set_view(struct sgp_texture *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    uint32_t texel_bytes = (uint32_t)texture->channel_bytes * texture->nr_channels, nr_channels;

    if ((unsigned int)view->format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (view->format > CU_RES_VIEW_FORMAT_FLOAT_4X32) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (view->format != CU_RES_VIEW_FORMAT_NONE) {
        CUarray_format format = view_format(view->format, &nr_channels);

        texture->is_fraction = false;
        if (!texel_set(texture, format, nr_channels) ||
            (uint32_t)texture->channel_bytes * texture->nr_channels != texel_bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (view->firstMipmapLevel > view->lastMipmapLevel || view->lastMipmapLevel >= texture->nr_levels ||
        view->firstLayer > view->lastLayer || (view->lastLayer && view->lastLayer >= texture->nr_layers)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    texture->nr_levels = view->lastMipmapLevel - view->firstMipmapLevel + 1;
    memmove(texture->levels, &texture->levels[view->firstMipmapLevel], texture->nr_levels * sizeof(*texture->levels));
    for (uint32_t level = 0; level < texture->nr_levels; level++) {
        texture->levels[level].base += view->firstLayer * texture->levels[level].slice_bytes;
    }
    if (texture->nr_layers) {
        texture->nr_layers = view->lastLayer - view->firstLayer + 1;
    }
    return CUDA_SUCCESS;
}
