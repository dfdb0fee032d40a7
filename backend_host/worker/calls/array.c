/*
 * Arrays and mipmapped arrays. What the driver really takes for one is known to the driver alone; the quota is charged
 * what its texels take in whole tiles, before the driver is asked.
 *
 * Wrong when: a guest makes very many very small arrays, each of which takes a driver more than its tile.
 */
#include "calls/array.h"

#include <stdlib.h>

#include "base/count.h"
#include "calls/lack.h"
#include "calls/memory.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "cuda_api/array_format.h"
#include "page/account.h"
#include "page/layout.h"

#define SERVED_FLAGS                                                                                                   \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |           \
     CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT)

#define KNOWN_FLAGS                                                                                                    \
    (SERVED_FLAGS | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) /* without memory of their own: not served */

/* An array that was paid for, or the error; `object` is the caller's. */
static CUresult array_new(struct fgw_worker *worker, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint32_t nr_levels,
                          struct fgw_array **object)
{
    uint64_t bytes;
    if ((descriptor->Flags & ~SERVED_FLAGS) != 0) {
        return (descriptor->Flags & ~KNOWN_FLAGS) != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (nr_levels == 0 || nr_levels > fgv_array_max_levels(descriptor) ||
        !fgv_array_bytes(descriptor, nr_levels, &bytes)) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgw_array *array = calloc(1, sizeof(*array));
    if (!array || !fgw_memory_place(worker, bytes)) {
        free(array);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->descriptor = *descriptor;
    array->quota_bytes = bytes;
    array->nr_levels = nr_levels;
    fgv_array_box_of(descriptor, 0, &array->box);
    *object = array;
    return CUDA_SUCCESS;
}

static void array_delete(struct fgw_worker *worker, struct fgw_array *array)
{
    if (array && array->quota_bytes != 0) {
        fgw_memory_unplace(worker, array->quota_bytes);
    }
    free(array);
}

void fgw_array_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    array_delete(worker, handle->object);
}

static CUresult create_native(const struct fgv_driver *driver, enum fgv_handle_kind kind,
                              const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint32_t nr_levels, void **native)
{
    if (kind == FGV_HANDLE_ARRAY) {
        return driver->cuArray3DCreate_v2 ? driver->cuArray3DCreate_v2((CUarray *)native, descriptor)
                                          : CUDA_ERROR_NOT_SUPPORTED;
    }
    return driver->cuMipmappedArrayCreate
               ? driver->cuMipmappedArrayCreate((CUmipmappedArray *)native, descriptor, nr_levels)
               : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult create(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number,
                       CUDA_ARRAY3D_DESCRIPTOR descriptor, uint32_t nr_levels)
{
    struct fgw_array *array;
    void *native;
    CUresult result = fgw_worker_can_bind(worker, kind, number);
    if (result == CUDA_SUCCESS) {
        result = array_new(worker, &descriptor, nr_levels, &array);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = create_native(&worker->driver, kind, &descriptor, nr_levels, &native);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker);
        result = create_native(&worker->driver, kind, &descriptor, nr_levels, &native);
    }
    if (result != CUDA_SUCCESS) {
        const uint64_t bytes = array->quota_bytes;
        array_delete(worker, array);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? fgw_lack_of(worker, bytes) : result;
    }
    fgw_worker_bind(worker, kind, number, native);
    fgw_handle_hang(worker, kind, number, array);
    return CUDA_SUCCESS;
}

#define DESCRIPTOR(request)                                                                                            \
    ((CUDA_ARRAY3D_DESCRIPTOR){.Width = (request)->width,                                                              \
                               .Height = (request)->height,                                                            \
                               .Depth = (request)->depth,                                                              \
                               .Format = (CUarray_format)(request)->format,                                            \
                               .NumChannels = (request)->nr_channels,                                                  \
                               .Flags = (request)->flags})

CUresult fgw_serve_cuArray3DCreate_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuArray3DCreate_v2 *fixed = request->fixed;
    (void)reply;
    return create(worker, FGV_HANDLE_ARRAY, fixed->handle, DESCRIPTOR(fixed), 1);
}

CUresult fgw_serve_cuMipmappedArrayCreate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMipmappedArrayCreate *fixed = request->fixed;
    (void)reply;
    return create(worker, FGV_HANDLE_MIPMAPPED_ARRAY, fixed->handle, DESCRIPTOR(fixed), fixed->nr_levels);
}

CUresult fgw_serve_cuArrayDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuArrayDestroy *fixed = request->fixed;
    (void)reply;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_ARRAY, fixed->handle);
    if (handle.number == 0 || ((const struct fgw_array *)handle.object)->is_level) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result =
        worker->driver.cuArrayDestroy ? worker->driver.cuArrayDestroy(handle.native) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_ARRAY, fixed->handle);
    }
    return result;
}

CUresult fgw_serve_cuMipmappedArrayGetLevel(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMipmappedArrayGetLevel *fixed = request->fixed;
    (void)reply;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_MIPMAPPED_ARRAY, fixed->mipmap);
    if (handle.number == 0 || !worker->driver.cuMipmappedArrayGetLevel) {
        return handle.number != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
    }
    const struct fgw_array *mipmap = handle.object;
    if (fixed->level >= mipmap->nr_levels) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUarray native;
    struct fgw_array *level = calloc(1, sizeof(*level));
    CUresult result = level ? fgw_worker_can_bind(worker, FGV_HANDLE_ARRAY, fixed->handle) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMipmappedArrayGetLevel(&native, handle.native, fixed->level);
    }
    if (result != CUDA_SUCCESS) {
        free(level);
        return result;
    }
    level->descriptor = mipmap->descriptor;
    level->level = fixed->level;
    level->is_level = true;
    fgv_array_box_of(&mipmap->descriptor, fixed->level, &level->box);
    fgw_worker_bind_under(worker, FGV_HANDLE_ARRAY, fixed->handle, native, FGV_HANDLE_MIPMAPPED_ARRAY, fixed->mipmap);
    fgw_handle_hang(worker, FGV_HANDLE_ARRAY, fixed->handle, level);
    return CUDA_SUCCESS;
}

CUresult fgw_serve_cuMipmappedArrayDestroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMipmappedArrayDestroy *fixed = request->fixed;
    (void)reply;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_MIPMAPPED_ARRAY, fixed->handle);
    if (handle.number == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = worker->driver.cuMipmappedArrayDestroy ? worker->driver.cuMipmappedArrayDestroy(handle.native)
                                                             : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_MIPMAPPED_ARRAY, fixed->handle);
    }
    return result;
}

/* ---- saved ---- */

struct saved_array {
    uint64_t width, height, depth;
    uint32_t format, nr_channels, flags;
    uint32_t nr_levels; /* of a mipmapped array */
    uint32_t level;     /* of a level, for which the rest is 0 */
    uint32_t reserved;
};

const char *fgw_array_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgw_array *array = handle->object;
    const CUDA_ARRAY3D_DESCRIPTOR *descriptor = &array->descriptor;
    struct saved_array saved = {.level = array->level};
    (void)worker;
    if (!array->is_level) {
        saved.width = descriptor->Width;
        saved.height = descriptor->Height;
        saved.depth = descriptor->Depth;
        saved.format = descriptor->Format;
        saved.nr_channels = descriptor->NumChannels;
        saved.flags = descriptor->Flags;
        saved.nr_levels = array->nr_levels;
    }
    fgw_saver_put(saver, &saved, sizeof(saved));
    return NULL;
}

static const char *restore_array(struct fgw_worker *worker, uint64_t number, const struct saved_array *was,
                                 struct fgw_saved *saved)
{
    const struct fgv_request_cuArray3DCreate_v2 create = {.handle = number,
                                                          .width = was->width,
                                                          .height = was->height,
                                                          .depth = was->depth,
                                                          .format = was->format,
                                                          .nr_channels = was->nr_channels,
                                                          .flags = was->flags};
    return fgw_saved_serve(worker, saved,
                           &(struct fgw_saved_call){.call = FGV_CALL_cuArray3DCreate_v2, .fixed = &create});
}

static const char *restore_mipmapped(struct fgw_worker *worker, uint64_t number, const struct saved_array *was,
                                     struct fgw_saved *saved)
{
    const struct fgv_request_cuMipmappedArrayCreate create = {.handle = number,
                                                              .width = was->width,
                                                              .height = was->height,
                                                              .depth = was->depth,
                                                              .format = was->format,
                                                              .nr_channels = was->nr_channels,
                                                              .flags = was->flags,
                                                              .nr_levels = was->nr_levels};
    return fgw_saved_serve(worker, saved,
                           &(struct fgw_saved_call){.call = FGV_CALL_cuMipmappedArrayCreate, .fixed = &create});
}

const char *fgw_array_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_array was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    if (head->kind == FGV_HANDLE_MIPMAPPED_ARRAY) {
        return restore_mipmapped(worker, head->number, &was, saved);
    }
    if (head->above_kind != FGV_HANDLE_MIPMAPPED_ARRAY) {
        return restore_array(worker, head->number, &was, saved);
    }
    const struct fgv_request_cuMipmappedArrayGetLevel level = {
        .mipmap = head->above, .handle = head->number, .level = was.level};
    return fgw_saved_serve(worker, saved,
                           &(struct fgw_saved_call){.call = FGV_CALL_cuMipmappedArrayGetLevel, .fixed = &level});
}
