/*
 * Texture and surface objects: the table of them, making, destroying, questions. What their records say is
 * texture_record.c, what a kernel does with one is runtime/texture.c and surface.c.
 */
#include "memory/texture.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/view.h"
#include "cuda_api/prototypes.h"
#include "memory/texture_record.h"
#include "stream/queue.h"

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
    sgp_view_outdate();
    return texture->value;
}

static void object_remove(struct sgp_texture *texture)
{
    texture->value = 0;
    texture->generation++;
    sgp_view_outdate();
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
    *maxWidthInElements = SGP_MAX_LINEAR_TEXELS;
    return sgp_leave(CUDA_SUCCESS);
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
    result = sgp_texture_set_resource(&texture, pResDesc);
    if (!result && pResViewDesc) {
        result = sgp_texture_set_view(&texture, pResViewDesc);
    }
    if (!result) {
        result = sgp_texture_set_sampler(&texture, pTexDesc);
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
    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY || pResDesc->flags) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    description.resource = *pResDesc;
    result = sgp_texture_set_array(&surface, pResDesc->res.array.hArray);
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
