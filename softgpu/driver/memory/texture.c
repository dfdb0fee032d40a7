/* Making and destroying texture and surface objects. What a kernel does with one is runtime/texture.c and surface.c. */
#include "memory/texture.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

#define PITCH_ALIGNMENT   32u
#define ADDRESS_ALIGNMENT 16u
#define MAX_LINEAR_TEXELS (1u << 28)
#define KNOWN_FLAGS                                                                                                    \
    (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION)

/* As the program described it: for the calls that ask. */
struct description {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
};

static struct sgp_texture *textures; /* reserved whole when the first is made; untouched places take no memory */
static struct description *descriptions;
static uint32_t nr_used;
static uint32_t first_free; /* place + 1 */

static uint64_t value_of(uint32_t place, uint32_t generation)
{
    return (uint64_t)generation << 32 | (place + 1);
}

const struct sgp_texture *sgp_texture_find(uint64_t value, enum sgp_texture_kind kind)
{
    uint32_t place = (uint32_t)value - 1;
    const struct sgp_texture *texture = textures ? &textures[place % SGP_MAX_TEXTURES] : NULL;

    if (!texture || place >= SGP_MAX_TEXTURES || texture->value != value || texture->kind != kind) {
        return NULL;
    }
    return texture;
}

static bool table_make(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    if (textures) {
        return true;
    }
    void *records = mmap(NULL, SGP_MAX_TEXTURES * sizeof(*textures), PROT_READ | PROT_WRITE, flags, -1, 0);
    void *told = mmap(NULL, SGP_MAX_TEXTURES * sizeof(*descriptions), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (records == MAP_FAILED || told == MAP_FAILED) {
        return false;
    }
    descriptions = told;
    textures = records;
    return true;
}

/* Enters an object; 0 when there is no room. With the lock. */
static uint64_t object_add(const struct sgp_texture *object, const struct description *description)
{
    if (!table_make() || (!first_free && nr_used == SGP_MAX_TEXTURES)) {
        return 0;
    }
    uint32_t place = first_free ? first_free - 1 : nr_used++;
    struct sgp_texture *texture = &textures[place];
    uint32_t generation = texture->generation;

    if (first_free) {
        first_free = texture->next_free;
    }
    memcpy(texture, object, sizeof(*texture));
    texture->generation = generation;
    descriptions[place] = *description;
    texture->value = value_of(place, generation);
    return texture->value;
}

static void object_remove(struct sgp_texture *texture)
{
    texture->value = 0;
    texture->generation++;
    texture->next_free = first_free;
    first_free = (uint32_t)(texture - textures) + 1;
}

void sgp_texture_delete_context(const struct CUctx_st *context)
{
    for (uint32_t place = 0; place < nr_used; place++) {
        if (textures[place].value && textures[place].context == context) {
            object_remove(&textures[place]);
        }
    }
}

/* ---- texels ---- */

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

static CUresult array_resource(struct sgp_texture *texture, CUarray array)
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

    if (!nr_texels || nr_texels > MAX_LINEAR_TEXELS) {
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

static CUresult resource_set(struct sgp_texture *texture, const CUDA_RESOURCE_DESC *resource)
{
    if (resource->flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return array_resource(texture, resource->res.array.hArray);
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

SGP_EXPORT CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format,
                                                       unsigned int numChannels, CUdevice dev)
{
    struct fgv_texel texel;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!sgp_device_find(dev)) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (!maxWidthInElements || !fgv_channel_bytes(format) || !fgv_texel_of(format, numChannels, &texel)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *maxWidthInElements = MAX_LINEAR_TEXELS;
    return sgp_leave(CUDA_SUCCESS);
}

/* ---- how it is read ---- */

static CUresult sampler_set(struct sgp_texture *texture, const CUDA_TEXTURE_DESC *wanted)
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
static CUresult view_set(struct sgp_texture *texture, const CUDA_RESOURCE_VIEW_DESC *view)
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

SGP_EXPORT CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                      const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    struct sgp_texture texture = {.kind = SGP_TEXTURE};
    struct description description = {.has_view = pResViewDesc};
    CUresult result = sgp_enter(&texture.context);

    if (result) {
        return result;
    }
    if (!pTexObject || !pResDesc || !pTexDesc) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    description.resource = *pResDesc;
    description.texture = *pTexDesc;
    if (pResViewDesc) {
        description.view = *pResViewDesc;
    }
    result = resource_set(&texture, pResDesc);
    if (!result && pResViewDesc) {
        result = view_set(&texture, pResViewDesc);
    }
    if (!result) {
        result = sampler_set(&texture, pTexDesc);
    }
    if (result) {
        return sgp_leave(result);
    }
    uint64_t value = object_add(&texture, &description);
    if (!value) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pTexObject = value;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    struct sgp_texture surface = {.kind = SGP_SURFACE};
    struct description description = {.has_view = false};
    CUresult result = sgp_enter(&surface.context);

    if (result) {
        return result;
    }
    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    description.resource = *pResDesc;
    result = array_resource(&surface, pResDesc->res.array.hArray);
    if (!result && !(pResDesc->res.array.hArray->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result) {
        return sgp_leave(result);
    }
    uint64_t value = object_add(&surface, &description);
    if (!value) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pSurfObject = value;
    return sgp_leave(CUDA_SUCCESS);
}

/* ---- the end, and questions ---- */

/* The place of an object, the driver being entered; on error it is not. */
static CUresult enter_object(uint64_t value, enum sgp_texture_kind kind, uint32_t *place)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    const struct sgp_texture *texture = sgp_texture_find(value, kind);
    if (!texture) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *place = (uint32_t)(texture - textures);
    return CUDA_SUCCESS;
}

static CUresult enter_without_object(void)
{
    struct CUctx_st *context;

    return sgp_enter(&context);
}

static CUresult destroy(uint64_t value, enum sgp_texture_kind kind)
{
    uint32_t place = 0;
    CUresult result = value ? enter_object(value, kind, &place) : enter_without_object();

    if (result || !value) {
        return result ? result : sgp_leave(CUDA_SUCCESS);
    }
    sgp_queue_drain(textures[place].context); /* a kernel may still read through it; others run meanwhile */
    if (textures[place].value == value) {
        object_remove(&textures[place]);
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    return destroy(texObject, SGP_TEXTURE);
}

SGP_EXPORT CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return destroy(surfObject, SGP_SURFACE);
}

static CUresult resource_of(CUDA_RESOURCE_DESC *answer, uint64_t value, enum sgp_texture_kind kind)
{
    uint32_t place = 0;
    CUresult result = answer ? enter_object(value, kind, &place) : CUDA_ERROR_INVALID_VALUE;

    if (result) {
        return result;
    }
    *answer = descriptions[place].resource;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    return resource_of(pResDesc, texObject, SGP_TEXTURE);
}

SGP_EXPORT CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    return resource_of(pResDesc, surfObject, SGP_SURFACE);
}

/* Without one there is no colour of it either, as NVIDIA's driver tells. */
static bool has_border(const CUDA_TEXTURE_DESC *texture)
{
    for (int i = 0; i < 3; i++) {
        if (texture->addressMode[i] == CU_TR_ADDRESS_MODE_BORDER) {
            return true;
        }
    }
    return false;
}

SGP_EXPORT CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    uint32_t place = 0;
    CUresult result = pTexDesc ? enter_object(texObject, SGP_TEXTURE, &place) : CUDA_ERROR_INVALID_VALUE;

    if (result) {
        return result;
    }
    *pTexDesc = descriptions[place].texture;
    if (!has_border(pTexDesc)) {
        memset(pTexDesc->borderColor, 0, sizeof(pTexDesc->borderColor));
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
    uint32_t place = 0;
    CUresult result = pResViewDesc ? enter_object(texObject, SGP_TEXTURE, &place) : CUDA_ERROR_INVALID_VALUE;

    if (result) {
        return result;
    }
    if (!descriptions[place].has_view) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pResViewDesc = descriptions[place].view;
    return sgp_leave(CUDA_SUCCESS);
}
