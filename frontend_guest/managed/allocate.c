/*
 * Allocating managed memory: on the device and here at one address (area.h), or in the heap, where the device has no
 * room for it, and where FAIRGV_MANAGED=host asks for that.
 */
#include "managed/allocate.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "context/context.h"
#include "cuda_api/prototypes.h"
#include "managed/granules.h"
#include "managed/residence.h"
#include "memory/memory.h"
#include "memory/ranges.h"

static bool is_for_the_heap(void)
{
    const char *asked = getenv("FAIRGV_MANAGED");
    return asked && strcmp(asked, "host") == 0;
}

/* Room in an area of the current context that is shared, or in a new one. Between enter and leave. */
static CUresult take_shared(uint64_t bytes, uint64_t *address)
{
    struct fgv_area *area = fgv_areas;
    uint64_t offset = UINT64_MAX;
    CUresult result = CUDA_SUCCESS;
    while (area && offset == UINT64_MAX) {
        if (area->nr_shared != 0 && area->heap == 0 && area->context_handle == fgv_thread.current) {
            offset = fgv_area_take(area, bytes);
        }
        area = offset == UINT64_MAX ? area->next : area;
    }
    if (!area) {
        area = fgv_area_make(bytes, &result);
        if (!area) {
            return result;
        }
        fgv_granules_begin();
        offset = fgv_area_take(area, bytes);
    }
    *address = area->address + offset;
    return CUDA_SUCCESS;
}

static CUresult take(uint64_t bytes, uint64_t *address)
{
    CUresult result;
    if (bytes <= FGV_MAPPING_BYTES / 2) {
        return take_shared(bytes, address);
    }
    const struct fgv_area *area = fgv_area_make(bytes, &result);
    if (area) {
        fgv_granules_begin();
        *address = area->address;
    }
    return result;
}

static void give_back(const struct fgv_range *range)
{
    struct fgv_area *area = fgv_area_find(range->address);
    if (!area) {
        return;
    }
    if (area->nr_shared != 0) {
        fgv_area_give(area, range->address - area->address, range->bytes);
    }
    if (area->nr_shared == 0) {
        fgv_granules_end(area);
        fgv_area_drop(area);
    } else {
        fgv_residence_review(area);
    }
}

static CUresult allocate(uint64_t bytes, uint32_t flags, uint64_t *address)
{
    struct fgv_entered entered;
    CUresult result = fgv_call_healthy();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!is_for_the_heap()) {
        fgv_granules_enter(&entered);
        fgv_granules_open();
        result = take(bytes, address);
        fgv_granules_leave(&entered);
        if (result == CUDA_SUCCESS && !fgv_memory_enter(*address, bytes, FGV_MEMORY_MANAGED, flags, 0)) {
            return CUDA_ERROR_OUT_OF_MEMORY; /* it stays taken until the context ends */
        }
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? fgv_memory_take_managed(address, bytes, flags) : result;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    if (!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    uint64_t address;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = bytesize == 0 ? CUDA_ERROR_INVALID_VALUE : allocate(bytesize, flags, &address);
    }
    if (result == CUDA_SUCCESS) {
        *dptr = address;
    }
    return result;
}

/* As natively, after the work that may use it. */
CUresult fgv_managed_free(const struct fgv_range *range)
{
    struct fgv_range removed;
    struct fgv_entered entered;
    CUresult result = cuCtxSynchronize();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_memory_remove(range->address, FGV_MEMORY_MANAGED, &removed)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgv_granules_enter(&entered);
    give_back(&removed);
    fgv_granules_leave(&entered);
    return CUDA_SUCCESS;
}

/* Variables are brought back, and told that their context goes, if they are of one, or may be. */
static void release(struct fgv_area *area, uint64_t of)
{
    const struct fgv_context *context = (const struct fgv_context *)(uintptr_t)of;
    if (!area->variables && area->context == context) {
        fgv_granules_end(area);
        fgv_area_drop(area);
    } else if (area->variables && (area->context == context || (!area->context && context->is_primary))) {
        if (area->stream && fgv_call_sticky_error() == CUDA_SUCCESS) {
            fgv_granules_bring(area);
        }
        fgv_area_orphan(area);
    }
}

void fgv_managed_release(const struct fgv_context *context)
{
    fgv_granules_each(release, (uint64_t)(uintptr_t)context);
}
