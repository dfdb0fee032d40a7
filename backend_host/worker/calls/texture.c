/*
 * Texture and surface objects. Their values are the driver's: a kernel takes one as a parameter, and the guest passes
 * it on without being asked. Only a value that this client was given can be destroyed by it.
 *
 * What a description says is the driver's to judge: it leaves alone what does not apply to a resource, whatever is
 * there, and programs leave things there. A texture reaches nothing that a kernel of its context does not.
 */
#include "calls/texture.h"

#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "page/layout.h"

/* A driver counts its objects from 1, and small numbers are those of default streams in the table of handles. */
#define NUMBER_OF(object) ((object) + 16u)
#define OBJECT_OF(number) ((number) - 16u)

static CUresult native_array(struct fgw_worker *worker, uint64_t number, CUDA_RESOURCE_DESC *resource)
{
    void *native;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_ARRAY, number, &native);
    if (result == CUDA_SUCCESS) {
        *resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY};
        resource->res.array.hArray = native;
    }
    return result;
}

static CUresult native_resource(struct fgw_worker *worker, const struct fgv_request_cuTexObjectCreate *fixed,
                                CUDA_RESOURCE_DESC *resource)
{
    void *mipmap = NULL;
    CUresult result = CUDA_SUCCESS;
    *resource = (CUDA_RESOURCE_DESC){.resType = (CUresourcetype)fixed->type};
    switch (fixed->type) {
    case CU_RESOURCE_TYPE_ARRAY:
        return native_array(worker, fixed->address, resource);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        result = fgw_worker_find(worker, FGV_HANDLE_MIPMAPPED_ARRAY, fixed->address, &mipmap);
        resource->res.mipmap.hMipmappedArray = mipmap;
        return result;
    case CU_RESOURCE_TYPE_LINEAR:
        resource->res.linear.devPtr = fgw_worker_address(worker, fixed->address);
        resource->res.linear.format = (CUarray_format)fixed->format;
        resource->res.linear.numChannels = fixed->nr_channels;
        resource->res.linear.sizeInBytes = fixed->width;
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
        resource->res.pitch2D.devPtr = fgw_worker_address(worker, fixed->address);
        resource->res.pitch2D.format = (CUarray_format)fixed->format;
        resource->res.pitch2D.numChannels = fixed->nr_channels;
        resource->res.pitch2D.width = fixed->width;
        resource->res.pitch2D.height = fixed->height;
        resource->res.pitch2D.pitchInBytes = fixed->pitch_bytes;
        return CUDA_SUCCESS;
    default:
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUDA_TEXTURE_DESC native_texture(const struct fgv_request_cuTexObjectCreate *fixed)
{
    CUDA_TEXTURE_DESC texture = {.filterMode = (CUfilter_mode)fixed->filter_mode,
                                 .flags = fixed->flags,
                                 .maxAnisotropy = fixed->max_anisotropy,
                                 .mipmapFilterMode = (CUfilter_mode)fixed->mipmap_filter_mode,
                                 .mipmapLevelBias = fixed->mipmap_level_bias,
                                 .minMipmapLevelClamp = fixed->min_mipmap_level_clamp,
                                 .maxMipmapLevelClamp = fixed->max_mipmap_level_clamp};
    for (int axis = 0; axis < 3; axis++) {
        texture.addressMode[axis] = (CUaddress_mode)fixed->address_mode[axis];
    }
    for (int channel = 0; channel < 4; channel++) {
        texture.borderColor[channel] = fixed->border_color[channel];
    }
    return texture;
}

static CUDA_RESOURCE_VIEW_DESC native_view(const struct fgv_request_cuTexObjectCreate *fixed)
{
    return (CUDA_RESOURCE_VIEW_DESC){.format = (CUresourceViewFormat)fixed->view_format,
                                     .width = fixed->view_width,
                                     .height = fixed->view_height,
                                     .depth = fixed->view_depth,
                                     .firstMipmapLevel = fixed->first_level,
                                     .lastMipmapLevel = fixed->last_level,
                                     .firstLayer = fixed->first_layer,
                                     .lastLayer = fixed->last_layer};
}

static bool is_there(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    return fgw_handle_find(worker, kind, number).number != 0;
}

/* The request that it was made with hangs on it. */
static CUresult bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t object, const void *fixed,
                     uint32_t fixed_bytes)
{
    void *made = malloc(fixed_bytes);
    CUresult result = made ? fgw_worker_bind(worker, kind, NUMBER_OF(object), NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    memcpy(made, fixed, fixed_bytes);
    fgw_handle_hang(worker, kind, NUMBER_OF(object), made);
    return CUDA_SUCCESS;
}

CUresult fgw_serve_cuTexObjectCreate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuTexObjectCreate *fixed = request->fixed;
    struct fgv_reply_cuTexObjectCreate *answer = reply;
    CUDA_RESOURCE_DESC resource;
    CUtexObject object;
    if (!worker->driver.cuTexObjectCreate || !worker->driver.cuTexObjectDestroy) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUDA_TEXTURE_DESC texture = native_texture(fixed);
    const CUDA_RESOURCE_VIEW_DESC view = native_view(fixed);
    CUresult result = native_resource(worker, fixed, &resource);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuTexObjectCreate(&object, &resource, &texture, fixed->has_view ? &view : NULL);
    }
    if (result == CUDA_SUCCESS) {
        result = bind(worker, FGW_OWN_TEXTURE, object, fixed, sizeof(*fixed));
        if (result != CUDA_SUCCESS) {
            worker->driver.cuTexObjectDestroy(object);
        }
    }
    answer->object = result == CUDA_SUCCESS ? object : 0;
    return result;
}

CUresult fgw_serve_cuTexObjectDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuTexObjectDestroy *fixed = request->fixed;
    (void)reply;
    if (!is_there(worker, FGW_OWN_TEXTURE, NUMBER_OF(fixed->object))) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgw_worker_unbind(worker, FGW_OWN_TEXTURE, NUMBER_OF(fixed->object));
    return worker->driver.cuTexObjectDestroy(fixed->object);
}

CUresult fgw_serve_cuSurfObjectCreate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuSurfObjectCreate *fixed = request->fixed;
    struct fgv_reply_cuSurfObjectCreate *answer = reply;
    CUDA_RESOURCE_DESC resource;
    CUsurfObject object;
    if (!worker->driver.cuSurfObjectCreate || !worker->driver.cuSurfObjectDestroy) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = native_array(worker, fixed->array, &resource);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuSurfObjectCreate(&object, &resource);
    }
    if (result == CUDA_SUCCESS) {
        result = bind(worker, FGW_OWN_SURFACE, object, fixed, sizeof(*fixed));
        if (result != CUDA_SUCCESS) {
            worker->driver.cuSurfObjectDestroy(object);
        }
    }
    answer->object = result == CUDA_SUCCESS ? object : 0;
    return result;
}

CUresult fgw_serve_cuSurfObjectDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuSurfObjectDestroy *fixed = request->fixed;
    (void)reply;
    if (!is_there(worker, FGW_OWN_SURFACE, NUMBER_OF(fixed->object))) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgw_worker_unbind(worker, FGW_OWN_SURFACE, NUMBER_OF(fixed->object));
    return worker->driver.cuSurfObjectDestroy(fixed->object);
}

/* ---- saved ---- */

/* Kernels have the values of objects among their parameters, where nobody finds them, so the value has to be the same.
 * A driver gives free ones in an order of its own: what comes before the right one is kept until that comes. */
#define MAX_TRIES 4096u

const char *fgw_texture_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgv_request_cuTexObjectCreate *made = handle->object;
    if ((made->type == CU_RESOURCE_TYPE_ARRAY && !is_there(worker, FGV_HANDLE_ARRAY, made->address)) ||
        (made->type == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
         !is_there(worker, FGV_HANDLE_MIPMAPPED_ARRAY, made->address))) {
        return "the array that it reads is gone";
    }
    fgw_saver_put(saver, made, sizeof(*made));
    return NULL;
}

const char *fgw_surface_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgv_request_cuSurfObjectCreate *made = handle->object;
    if (!is_there(worker, FGV_HANDLE_ARRAY, made->array)) {
        return "the array that it reads and writes is gone";
    }
    fgw_saver_put(saver, made, sizeof(*made));
    return NULL;
}

/* Both kinds have the same calls, with an object alone in reply and request. */
_Static_assert(sizeof(struct fgv_reply_cuTexObjectCreate) == sizeof(uint64_t) &&
                   sizeof(struct fgv_reply_cuSurfObjectCreate) == sizeof(uint64_t) &&
                   sizeof(struct fgv_request_cuTexObjectDestroy) == sizeof(uint64_t) &&
                   sizeof(struct fgv_request_cuSurfObjectDestroy) == sizeof(uint64_t),
               "one shape for both");

static const char *make_with_value(struct fgw_worker *worker, struct fgw_saved *saved, uint16_t create,
                                   uint16_t destroy, const void *fixed, uint64_t wanted)
{
    uint64_t *others = malloc(MAX_TRIES * sizeof(*others));
    uint64_t object = 0;
    uint32_t nr = 0;
    const char *why = others ? NULL : "no memory";
    while (!why && object != wanted) {
        struct fgw_saved_call call = {.call = create, .fixed = fixed, .reply = &object};
        if (nr == MAX_TRIES) {
            why = "the device library gives no object this value";
        } else if (!(why = fgw_saved_serve(worker, saved, &call)) && object != wanted) {
            others[nr++] = object;
        }
    }
    while (nr != 0) {
        const struct fgw_saved_call call = {.call = destroy, .fixed = &others[--nr]};
        fgw_saved_serve(worker, &(struct fgw_saved){0}, &call);
    }
    free(others);
    return why;
}

const char *fgw_texture_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct fgv_request_cuTexObjectCreate was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    return make_with_value(worker, saved, FGV_CALL_cuTexObjectCreate, FGV_CALL_cuTexObjectDestroy, &was,
                           OBJECT_OF(head->number));
}

const char *fgw_surface_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct fgv_request_cuSurfObjectCreate was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    return make_with_value(worker, saved, FGV_CALL_cuSurfObjectCreate, FGV_CALL_cuSurfObjectDestroy, &was,
                           OBJECT_OF(head->number));
}
