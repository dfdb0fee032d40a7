/*
 * Contexts of the client. Each request names the one that is current in its thread; the driver is told only when it is
 * another than before.
 *
 * The primary context was retained before there was a client. When the guest gives it up, both references go, so that
 * everything in it is really gone, as it would be in a process of the guest's own.
 */
#include "calls/context.h"

#include <stdlib.h>

#include "calls/eager.h"
#include "calls/event_time.h"
#include "calls/host_function.h"
#include "calls/image_memory.h"
#include "calls/memory.h"
#include "calls/pool.h"
#include "calls/sharing.h"
#include "calls/swap.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "client/taken.h"
#include "page/account.h"
#include "parts/lane.h"
#include "parts/variant.h"
#include "track/ends.h"
#include "turn/round.h"

/* Those scheduling flags say how a thread of the program waits in the driver; the worker never waits there. */
#define PASSED_FLAGS (CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS)

static void give(struct fgw_worker *worker, bool is_primary)
{
    if (!is_primary) {
        fgw_taken_give(worker, FGW_FOR_CONTEXTS, worker->costs.context_bytes);
    } else if (!worker->warm) {
        fgw_taken_primary_gone(worker);
    }
    fgw_limit_give(&worker->grantee, FGW_LIMITED_CONTEXTS, 1);
}

static bool take(struct fgw_worker *worker, bool is_primary)
{
    if (!fgw_limit_take(&worker->grantee, FGW_LIMITED_CONTEXTS, 1)) {
        return false;
    }
    const bool has_memory =
        is_primary ? fgw_taken_primary(worker) : fgw_taken_take(worker, FGW_FOR_CONTEXTS, worker->costs.context_bytes);
    if (!has_memory) {
        fgw_limit_give(&worker->grantee, FGW_LIMITED_CONTEXTS, 1);
    } else if (!fgw_image_memory_settle(worker, fgw_context_count(worker) + 1)) {
        give(worker, is_primary);
        return false;
    }
    return has_memory;
}

static CUresult make_native(struct fgw_worker *worker, const struct fgv_request_context_create *fixed, CUdevice device,
                            CUcontext *native)
{
    if (fixed->is_primary) {
        if (!worker->warm && worker->driver.cuDevicePrimaryCtxSetFlags_v2) {
            worker->driver.cuDevicePrimaryCtxSetFlags_v2(device, fixed->flags & PASSED_FLAGS);
        }
        return worker->driver.cuDevicePrimaryCtxRetain(native, device);
    }
    CUresult result = worker->driver.cuCtxCreate_v2(native, fixed->flags & PASSED_FLAGS, device);
    if (result == CUDA_SUCCESS) {
        CUcontext popped;
        worker->driver.cuCtxPopCurrent_v2(&popped);
    }
    return result;
}

CUresult fgw_serve_context_create(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_context_create *fixed = request->fixed;
    (void)reply;
    CUdevice device;
    CUresult result = fgw_worker_device(worker, (int32_t)fixed->device, &device);
    uint32_t place = 0;
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *other = worker->contexts[i];
        if (other && ((uint32_t)other->handle == (uint32_t)fixed->handle || (other->is_primary && fixed->is_primary))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    while (place < FGW_MAX_CONTEXTS && worker->contexts[place]) {
        place++;
    }
    if (result == CUDA_SUCCESS) {
        result = (uint32_t)fixed->handle == 0 ? CUDA_ERROR_INVALID_VALUE
                 : place == FGW_MAX_CONTEXTS  ? CUDA_ERROR_OUT_OF_MEMORY
                                              : fgw_worker_can_bind(worker, FGV_HANDLE_CONTEXT, fixed->handle);
    }
    struct fgw_context *context = result == CUDA_SUCCESS ? calloc(1, sizeof(*context)) : NULL;
    if (!context) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    CUcontext native = NULL;
    const bool is_primary = fixed->is_primary != 0;
    if (!take(worker, is_primary)) {
        fgw_memory_trim(worker);
        if (!take(worker, is_primary)) {
            free(context);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    result = make_native(worker, fixed, device, &native);
    if (result != CUDA_SUCCESS) {
        fgw_image_memory_settle(worker, fgw_context_count(worker));
        give(worker, is_primary);
        free(context);
        return result;
    }
    context->handle = fixed->handle;
    context->native = native;
    context->device = device;
    context->is_primary = is_primary;
    fgw_stream_init(&context->legacy, context, NULL);
    fgw_stream_init(&context->per_thread, context, CU_STREAM_PER_THREAD);
    fgw_context_add(worker, context);
    fgw_worker_bind(worker, FGV_HANDLE_CONTEXT, fixed->handle, native);
    fgw_context_none_is_current(worker); /* whatever the driver left current */
    fgw_context_make_current(worker, context);
    fgw_taken_note_limits(worker, context);
    fgw_memory_pin(worker);
    fgw_eager_load_here(worker);
    return CUDA_SUCCESS;
}

CUresult fgw_context_destroy(struct fgw_worker *worker, struct fgw_context *context)
{
    fgw_context_make_current(worker, context);
    fgw_round_context_ends(worker, context);
    fgw_memory_unpin(worker, context);
    fgw_host_let_go(worker, context);
    fgw_stream_drop_context(worker, context);
    fgw_pools_settle(worker);
    fgw_variants_drop_context(worker, context);
    fgw_handles_drop_context(worker, context);
    fgw_told_forget_context(worker, context->handle);
    fgw_lanes_drop(worker, context);
    fgw_swap_drop_context(worker, context);
    fgw_event_time_forget();
    worker->driver.cuCtxSetCurrent(NULL);
    fgw_context_none_is_current(worker);
    CUresult result;
    if (context->is_primary) {
        result = worker->driver.cuDevicePrimaryCtxRelease_v2(context->device);
        const CUresult last = fgw_context_cool(worker);
        result = result == CUDA_SUCCESS ? last : result;
    } else {
        result = worker->driver.cuCtxDestroy_v2(context->native);
    }
    fgw_sharing_drop_context(worker, context);
    fgw_memory_drop_context(worker, context);
    give(worker, context->is_primary);
    fgw_taken_limits_gone(worker, context);
    fgw_host_gone(worker, context);
    fgw_context_remove(worker, context);
    free(context);
    fgw_image_memory_settle(worker, fgw_context_count(worker));
    struct fgw_context *other = fgw_context_any(worker);
    if (other) {
        fgw_context_make_current(worker, other);
        fgw_memory_pin(worker);
    }
    return result;
}

bool fgw_context_is_released(struct fgw_worker *worker, const struct fgw_request *request)
{
    const struct fgv_request_context_destroy *fixed = request->fixed;
    const struct fgw_context *context = fgw_context_find(worker, fixed->handle);
    return fixed->is_released != 0 && context && context->is_primary && context->fault == CUDA_SUCCESS;
}

bool fgw_context_is_primary(struct fgw_worker *worker, const struct fgw_request *request)
{
    const struct fgv_request_context_destroy *fixed = request->fixed;
    const struct fgw_context *context = fgw_context_find(worker, fixed->handle);
    return context && context->is_primary;
}

CUresult fgw_serve_context_destroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_context_destroy *fixed = request->fixed;
    (void)reply;
    struct fgw_context *context = fgw_context_find(worker, fixed->handle);
    return context ? fgw_context_destroy(worker, context) : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- saved ---- */

#define NR_LIMITS CU_LIMIT_SHMEM_SIZE /* those behind it are of other interfaces */

struct saved_context {
    uint32_t is_primary;
    uint32_t flags;
    uint32_t cache_config;
    uint32_t has_limits; /* bits of those that the device has */
    uint64_t limits[NR_LIMITS];
};

const char *fgw_context_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgv_driver *driver = &worker->driver;
    struct saved_context saved = {.is_primary = worker->current->is_primary};
    unsigned int flags = 0;
    CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
    (void)handle;
    if (worker->current->fault != CUDA_SUCCESS) {
        return "a kernel of it failed";
    }
    if (driver->cuCtxGetFlags && driver->cuCtxGetFlags(&flags) == CUDA_SUCCESS) {
        saved.flags = flags & PASSED_FLAGS;
    }
    if (driver->cuCtxGetCacheConfig && driver->cuCtxGetCacheConfig(&config) == CUDA_SUCCESS) {
        saved.cache_config = config;
    }
    for (uint32_t i = 0; i < NR_LIMITS; i++) {
        size_t value = 0;
        if (driver->cuCtxGetLimit && driver->cuCtxGetLimit(&value, (CUlimit)i) == CUDA_SUCCESS) {
            saved.has_limits |= 1u << i;
            saved.limits[i] = value;
        }
    }
    fgw_saver_put(saver, &saved, sizeof(saved));
    return NULL;
}

/* Sets what is not as it was: drivers refuse some limits once there are modules, even their own values. */
static const char *set_again(struct fgw_worker *worker, const struct saved_context *was, struct fgw_saved *saved)
{
    const struct fgv_driver *driver = &worker->driver;
    const struct fgv_request_cuCtxSetCacheConfig config = {.config = was->cache_config};
    const char *why = NULL;
    if (was->cache_config != CU_FUNC_CACHE_PREFER_NONE) {
        why = fgw_saved_serve(worker, saved,
                              &(struct fgw_saved_call){.call = FGV_CALL_cuCtxSetCacheConfig, .fixed = &config});
    }
    for (uint32_t i = 0; i < NR_LIMITS && !why; i++) {
        const struct fgv_request_cuCtxSetLimit limit = {.limit = i, .value = was->limits[i]};
        size_t value = 0;
        if ((was->has_limits >> i & 1) != 0 &&
            (!driver->cuCtxGetLimit || driver->cuCtxGetLimit(&value, (CUlimit)i) != CUDA_SUCCESS ||
             value != was->limits[i])) {
            why = fgw_saved_serve(worker, saved,
                                  &(struct fgw_saved_call){.call = FGV_CALL_cuCtxSetLimit, .fixed = &limit});
        }
    }
    return why;
}

const char *fgw_context_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_context was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    if ((was.flags & ~PASSED_FLAGS) != 0 || was.is_primary > 1) {
        return FGW_SAVED_ODD;
    }
    if (was.is_primary && was.flags != 0 && !fgw_context_any(worker)) {
        fgw_context_cool(worker); /* one that is there keeps its flags */
    }
    const struct fgv_request_context_create create = {
        .handle = head->number, .flags = was.flags, .is_primary = was.is_primary};
    const char *why =
        fgw_saved_serve(worker, saved, &(struct fgw_saved_call){.call = FGV_CALL_context_create, .fixed = &create});
    return why ? why : set_again(worker, &was, saved);
}
