/*
 * Arrays and mipmapped arrays. The host makes them and holds their memory against the quota; what the program said of
 * them is kept here, so that questions about them need no host, and copies are bounded before they are sent.
 */
#include "memory/array.h"

#include <stdlib.h>

#include "base/thread.h"
#include "call/call.h"
#include "cuda_api/array_format.h"
#include "cuda_api/prototypes.h"
#include "memory/kept.h"

#define MAX_LEVELS 32u

struct mipmap {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct fgv_context *context;
    uint32_t nr_levels;
    _Atomic uint64_t levels[MAX_LEVELS]; /* the arrays that were asked for, 0 for the others */
};

const struct fgv_array *fgv_array_find(CUarray array)
{
    return fgv_handle_object(FGV_HANDLE_ARRAY, fgv_handle_number(array));
}

static struct mipmap *mipmap_find(CUmipmappedArray mipmap)
{
    return fgv_handle_object(FGV_HANDLE_MIPMAPPED_ARRAY, fgv_handle_number(mipmap));
}

bool fgv_mipmap_exists(CUmipmappedArray mipmap)
{
    return mipmap_find(mipmap) != NULL;
}

struct fgv_context *fgv_mipmap_context(uint64_t mipmap)
{
    const struct mipmap *record = fgv_handle_object(FGV_HANDLE_MIPMAPPED_ARRAY, mipmap);
    return !record ? NULL : record->context;
}

static void drop(enum fgv_handle_kind kind, uint64_t handle)
{
    void *object = fgv_handle_object(kind, handle);
    fgv_handle_drop(kind, handle);
    free(object);
}

static void forget_array(uint64_t handle, void *object, void *context)
{
    if (object && ((const struct fgv_array *)object)->context == context) {
        drop(FGV_HANDLE_ARRAY, handle);
    }
}

static void forget_mipmap(uint64_t handle, void *object, void *context)
{
    if (object && ((const struct mipmap *)object)->context == context) {
        drop(FGV_HANDLE_MIPMAPPED_ARRAY, handle);
    }
}

void fgv_array_forget_context(struct fgv_context *context)
{
    fgv_handle_each(FGV_HANDLE_ARRAY, forget_array, context);
    fgv_handle_each(FGV_HANDLE_MIPMAPPED_ARRAY, forget_mipmap, context);
}

/* ---- arrays ---- */

/* A number with an array behind it, of which the worker knows nothing yet. */
static CUresult array_number(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, bool is_level, uint64_t *handle)
{
    struct fgv_array *array = malloc(sizeof(*array));
    if (!array) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *array = (struct fgv_array){.descriptor = *descriptor, .context = fgv_thread.context, .is_level = is_level};
    CUresult result = fgv_handle_new(FGV_HANDLE_ARRAY, handle);
    if (result == CUDA_SUCCESS) {
        fgv_handle_set_object(FGV_HANDLE_ARRAY, *handle, array);
    } else {
        free(array);
    }
    return result;
}

static CUresult ask_for_array(uint64_t handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    struct fgv_call call;
    struct fgv_request_cuArray3DCreate_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuArray3DCreate_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuArray3DCreate_v2){.handle = handle,
                                                       .width = descriptor->Width,
                                                       .height = descriptor->Height,
                                                       .depth = descriptor->Depth,
                                                       .format = (uint32_t)descriptor->Format,
                                                       .nr_channels = descriptor->NumChannels,
                                                       .flags = descriptor->Flags};
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    uint64_t handle;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS && (!pHandle || !pAllocateArray)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = array_number(pAllocateArray, false, &handle);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ask_for_array(handle, pAllocateArray);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && fgv_kept_give_back()) {
        result = ask_for_array(handle, pAllocateArray);
    }
    if (result == CUDA_SUCCESS) {
        *pHandle = (CUarray)(uintptr_t)handle;
    } else {
        drop(FGV_HANDLE_ARRAY, handle);
    }
    return result;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    if (!pAllocateArray) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = pAllocateArray->Width,
                                                .Height = pAllocateArray->Height,
                                                .Format = pAllocateArray->Format,
                                                .NumChannels = pAllocateArray->NumChannels};
    return cuArray3DCreate_v2(pHandle, &descriptor);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pArrayDescriptor) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgv_array *array = fgv_array_find(hArray);
    if (!array) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *pArrayDescriptor = array->descriptor;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    if (!pArrayDescriptor) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = cuArray3DGetDescriptor_v2(&descriptor, hArray);
    if (result == CUDA_SUCCESS) {
        *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = descriptor.Width,
                                                    .Height = descriptor.Height,
                                                    .Format = descriptor.Format,
                                                    .NumChannels = descriptor.NumChannels};
    }
    return result;
}

CUresult cuArrayDestroy(CUarray hArray)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgv_array *array = fgv_array_find(hArray);
    if (!array || array->is_level) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct fgv_call call;
    struct fgv_request_cuArrayDestroy *request = fgv_call_begin(&call, FGV_CALL_cuArrayDestroy, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->handle = fgv_handle_number(hArray);
    result = fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS) {
        drop(FGV_HANDLE_ARRAY, fgv_handle_number(hArray));
    }
    return result;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array,
                                      CUdevice device)
{
    (void)device;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS && !fgv_array_find(array)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    (void)memoryRequirements;
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

/* ---- mipmapped arrays ---- */

static CUresult ask_for_mipmap(uint64_t handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint32_t nr_levels)
{
    struct fgv_call call;
    struct fgv_request_cuMipmappedArrayCreate *request =
        fgv_call_begin(&call, FGV_CALL_cuMipmappedArrayCreate, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMipmappedArrayCreate){.handle = handle,
                                                           .width = descriptor->Width,
                                                           .height = descriptor->Height,
                                                           .depth = descriptor->Depth,
                                                           .format = (uint32_t)descriptor->Format,
                                                           .nr_channels = descriptor->NumChannels,
                                                           .flags = descriptor->Flags,
                                                           .nr_levels = nr_levels};
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t most = fgv_array_max_levels(pMipmappedArrayDesc);
    const uint32_t nr_levels = numMipmapLevels < most ? numMipmapLevels : most; /* as CUDA does */
    struct mipmap *mipmap = nr_levels <= MAX_LEVELS ? calloc(1, sizeof(*mipmap)) : NULL;
    if (!mipmap) {
        return nr_levels <= MAX_LEVELS ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    mipmap->descriptor = *pMipmappedArrayDesc;
    mipmap->context = fgv_thread.context;
    mipmap->nr_levels = nr_levels;
    uint64_t handle;
    result = fgv_handle_new(FGV_HANDLE_MIPMAPPED_ARRAY, &handle);
    if (result != CUDA_SUCCESS) {
        free(mipmap);
        return result;
    }
    fgv_handle_set_object(FGV_HANDLE_MIPMAPPED_ARRAY, handle, mipmap);
    result = ask_for_mipmap(handle, pMipmappedArrayDesc, nr_levels);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && fgv_kept_give_back()) {
        result = ask_for_mipmap(handle, pMipmappedArrayDesc, nr_levels);
    }
    if (result == CUDA_SUCCESS) {
        *pHandle = (CUmipmappedArray)(uintptr_t)handle;
    } else {
        drop(FGV_HANDLE_MIPMAPPED_ARRAY, handle);
    }
    return result;
}

static CUDA_ARRAY3D_DESCRIPTOR level_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *mipmap, uint32_t level)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = *mipmap;
    bool has_layers = (mipmap->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    descriptor.Width = fgv_level_extent(mipmap->Width, level);
    descriptor.Height = fgv_level_extent(mipmap->Height, level);
    descriptor.Depth = has_layers ? mipmap->Depth : fgv_level_extent(mipmap->Depth, level);
    return descriptor;
}

/* The array of a level that nobody asked for before. */
static CUresult level_new(const struct mipmap *mipmap, uint64_t number, uint32_t level, uint64_t *handle)
{
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = level_descriptor(&mipmap->descriptor, level);
    CUresult result = array_number(&descriptor, true, handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_call call;
    struct fgv_request_cuMipmappedArrayGetLevel *request =
        fgv_call_begin(&call, FGV_CALL_cuMipmappedArrayGetLevel, sizeof(*request), 0);
    if (request) {
        *request = (struct fgv_request_cuMipmappedArrayGetLevel){.mipmap = number, .handle = *handle, .level = level};
    }
    result = !request ? call.error : fgv_call_wait(&call, NULL, 0);
    if (result != CUDA_SUCCESS) {
        drop(FGV_HANDLE_ARRAY, *handle);
    }
    return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct mipmap *mipmap = mipmap_find(hMipmappedArray);
    if (!mipmap) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pLevelArray || level >= mipmap->nr_levels) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* acquire and release: with the array that the number names */
    uint64_t handle = atomic_load_explicit(&mipmap->levels[level], memory_order_acquire);
    if (handle == 0) {
        result = level_new(mipmap, fgv_handle_number(hMipmappedArray), level, &handle);
        if (result == CUDA_SUCCESS) {
            atomic_store_explicit(&mipmap->levels[level], handle, memory_order_release);
        }
    }
    if (result == CUDA_SUCCESS) {
        *pLevelArray = (CUarray)(uintptr_t)handle;
    }
    return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct mipmap *mipmap = mipmap_find(hMipmappedArray);
    if (!mipmap) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct fgv_call call;
    struct fgv_request_cuMipmappedArrayDestroy *request =
        fgv_call_begin(&call, FGV_CALL_cuMipmappedArrayDestroy, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->handle = fgv_handle_number(hMipmappedArray);
    result = fgv_call_wait(&call, NULL, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (uint32_t level = 0; level < mipmap->nr_levels; level++) {
        if (mipmap->levels[level] != 0) {
            drop(FGV_HANDLE_ARRAY, mipmap->levels[level]);
        }
    }
    drop(FGV_HANDLE_MIPMAPPED_ARRAY, fgv_handle_number(hMipmappedArray));
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    (void)device;
    (void)memoryRequirements;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS && !fgv_mipmap_exists(mipmap)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}
