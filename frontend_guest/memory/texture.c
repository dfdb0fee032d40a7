/*
 * Texture and surface objects. The value of one goes to kernels as it is, so it is the device library's own; what it
 * was made of is remembered here and tells whether a value is an object of this program.
 *
 * Wrong when: a program makes so many objects that looking through a list of them takes time. Only questions about
 * objects and their end look there, and hash chains keep it short.
 */
#include "memory/texture.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "cuda_api/prototypes.h"
#include "memory/array.h"

#define NR_CHAINS 256u

struct object {
    struct object *next;
    uint64_t value;
    const struct fgv_context *context;
    bool has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

struct table {
    pthread_mutex_t lock;
    struct object *chains[NR_CHAINS];
};

static struct table textures = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct table surfaces = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t chain_of(uint64_t value)
{
    return (uint32_t)((value * UINT64_C(0x9e3779b97f4a7c15)) >> 56) % NR_CHAINS;
}

/* The link to the object of this value, or to the end of its chain. Under the lock. */
static struct object **link_of(struct table *table, uint64_t value)
{
    struct object **link = &table->chains[chain_of(value)];
    while (*link && (*link)->value != value) {
        link = &(*link)->next;
    }
    return link;
}

static void table_add(struct table *table, struct object *object)
{
    pthread_mutex_lock(&table->lock);
    struct object **chain = &table->chains[chain_of(object->value)];
    object->next = *chain;
    *chain = object;
    pthread_mutex_unlock(&table->lock);
}

static bool table_find(struct table *table, uint64_t value, struct object *copy)
{
    pthread_mutex_lock(&table->lock);
    const struct object *object = *link_of(table, value);
    if (object) {
        *copy = *object;
    }
    pthread_mutex_unlock(&table->lock);
    return object != NULL;
}

static bool table_remove(struct table *table, uint64_t value)
{
    pthread_mutex_lock(&table->lock);
    struct object **link = link_of(table, value);
    struct object *object = *link;
    if (object) {
        *link = object->next;
    }
    pthread_mutex_unlock(&table->lock);
    free(object);
    return object != NULL;
}

static void table_forget(struct table *table, const struct fgv_context *context)
{
    pthread_mutex_lock(&table->lock);
    for (uint32_t chain = 0; chain < NR_CHAINS; chain++) {
        for (struct object **link = &table->chains[chain]; *link;) {
            struct object *object = *link;
            if (object->context == context) {
                *link = object->next;
                free(object);
            } else {
                link = &object->next;
            }
        }
    }
    pthread_mutex_unlock(&table->lock);
}

void fgv_texture_forget_context(const struct fgv_context *context)
{
    table_forget(&textures, context);
    table_forget(&surfaces, context);
}

/* ---- making ---- */

/* The resource as the host wants it; arrays by their numbers. */
static CUresult fill_resource(struct fgv_request_cuTexObjectCreate *request, const CUDA_RESOURCE_DESC *resource)
{
    if (resource->flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    request->type = (uint32_t)resource->resType;
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        request->address = (uint64_t)(uintptr_t)resource->res.array.hArray;
        return fgv_array_find(resource->res.array.hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        request->address = (uint64_t)(uintptr_t)resource->res.mipmap.hMipmappedArray;
        return fgv_mipmap_exists(resource->res.mipmap.hMipmappedArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_LINEAR:
        request->address = resource->res.linear.devPtr;
        request->format = (uint32_t)resource->res.linear.format;
        request->nr_channels = resource->res.linear.numChannels;
        request->width = resource->res.linear.sizeInBytes;
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
        request->address = resource->res.pitch2D.devPtr;
        request->format = (uint32_t)resource->res.pitch2D.format;
        request->nr_channels = resource->res.pitch2D.numChannels;
        request->width = resource->res.pitch2D.width;
        request->height = resource->res.pitch2D.height;
        request->pitch_bytes = resource->res.pitch2D.pitchInBytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static void fill_texture(struct fgv_request_cuTexObjectCreate *request, const CUDA_TEXTURE_DESC *texture)
{
    for (int axis = 0; axis < 3; axis++) {
        request->address_mode[axis] = (uint32_t)texture->addressMode[axis];
    }
    for (int channel = 0; channel < 4; channel++) {
        request->border_color[channel] = texture->borderColor[channel];
    }
    request->filter_mode = (uint32_t)texture->filterMode;
    request->flags = texture->flags;
    request->max_anisotropy = texture->maxAnisotropy;
    request->mipmap_filter_mode = (uint32_t)texture->mipmapFilterMode;
    request->mipmap_level_bias = texture->mipmapLevelBias;
    request->min_mipmap_level_clamp = texture->minMipmapLevelClamp;
    request->max_mipmap_level_clamp = texture->maxMipmapLevelClamp;
}

static void fill_view(struct fgv_request_cuTexObjectCreate *request, const CUDA_RESOURCE_VIEW_DESC *view)
{
    request->has_view = 1;
    request->view_format = (uint32_t)view->format;
    request->view_width = view->width;
    request->view_height = view->height;
    request->view_depth = view->depth;
    request->first_level = view->firstMipmapLevel;
    request->last_level = view->lastMipmapLevel;
    request->first_layer = view->firstLayer;
    request->last_layer = view->lastLayer;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pTexObject || !pResDesc || !pTexDesc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_request_cuTexObjectCreate filled = {0};
    result = fill_resource(&filled, pResDesc);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fill_texture(&filled, pTexDesc);
    if (pResViewDesc) {
        fill_view(&filled, pResViewDesc);
    }
    struct object *object = calloc(1, sizeof(*object));
    if (!object) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->context = fgv_thread.context;
    object->has_view = pResViewDesc != NULL;
    object->resource = *pResDesc;
    object->texture = *pTexDesc;
    if (pResViewDesc) {
        object->view = *pResViewDesc;
    }
    struct fgv_call call;
    struct fgv_reply_cuTexObjectCreate reply;
    struct fgv_request_cuTexObjectCreate *request =
        fgv_call_begin(&call, FGV_CALL_cuTexObjectCreate, sizeof(*request), 0);
    if (request) {
        *request = filled;
    }
    result = !request ? call.error : fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        free(object);
        return result;
    }
    object->value = reply.object;
    table_add(&textures, object);
    *pTexObject = reply.object;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY || pResDesc->flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgv_array_find(pResDesc->res.array.hArray)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct object *object = calloc(1, sizeof(*object));
    if (!object) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->context = fgv_thread.context;
    object->resource = *pResDesc;
    struct fgv_call call;
    struct fgv_reply_cuSurfObjectCreate reply;
    struct fgv_request_cuSurfObjectCreate *request =
        fgv_call_begin(&call, FGV_CALL_cuSurfObjectCreate, sizeof(*request), 0);
    if (request) {
        request->array = (uint64_t)(uintptr_t)pResDesc->res.array.hArray;
    }
    result = !request ? call.error : fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        free(object);
        return result;
    }
    object->value = reply.object;
    table_add(&surfaces, object);
    *pSurfObject = reply.object;
    return CUDA_SUCCESS;
}

/* ---- the end ---- */

/* Removed before the host can give the value to another thread's object. */
static CUresult destroy(struct table *table, uint16_t number, uint64_t value)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS || value == 0) { /* no object: nothing to do, as with free() */
        return result;
    }
    if (!table_remove(table, value)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_request_cuTexObjectDestroy *request = fgv_call_begin(&call, number, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->object = value;
    return fgv_call_post(&call);
}

_Static_assert(sizeof(struct fgv_request_cuTexObjectDestroy) == sizeof(struct fgv_request_cuSurfObjectDestroy),
               "both are the value alone");

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    return destroy(&textures, FGV_CALL_cuTexObjectDestroy, texObject);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return destroy(&surfaces, FGV_CALL_cuSurfObjectDestroy, surfObject);
}

/* ---- questions ---- */

static CUresult ask(struct table *table, uint64_t value, const void *answer, struct object *object)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return answer && table_find(table, value, object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    struct object object;
    CUresult result = ask(&textures, texObject, pResDesc, &object);
    if (result == CUDA_SUCCESS) {
        *pResDesc = object.resource;
    }
    return result;
}

/* Without one there is no colour of it either. */
static bool has_border(const CUDA_TEXTURE_DESC *texture)
{
    for (unsigned i = 0; i < sizeof(texture->addressMode) / sizeof(texture->addressMode[0]); i++) {
        if (texture->addressMode[i] == CU_TR_ADDRESS_MODE_BORDER) {
            return true;
        }
    }
    return false;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    struct object object;
    CUresult result = ask(&textures, texObject, pTexDesc, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pTexDesc = object.texture;
    if (!has_border(pTexDesc)) {
        memset(pTexDesc->borderColor, 0, sizeof(pTexDesc->borderColor));
    }
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
    struct object object;
    CUresult result = ask(&textures, texObject, pResViewDesc, &object);
    if (result == CUDA_SUCCESS && !object.has_view) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *pResViewDesc = object.view;
    }
    return result;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    struct object object;
    CUresult result = ask(&surfaces, surfObject, pResDesc, &object);
    if (result == CUDA_SUCCESS) {
        *pResDesc = object.resource;
    }
    return result;
}
