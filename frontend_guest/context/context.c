/* Contexts and their life: see context.h. Which is current is context_current.c, limits and other settings are in
 * context_settings.c. */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/device.h"
#include "cuda_api/handshake.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

const struct fgv_context_ops *fgv_context_ops;

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct fgv_context primaries[FGV_FACTS_MAX_DEVICES];
static struct fgv_context *free_contexts;
static _Atomic uint64_t last_id;

static void context_reset(struct fgv_context *context)
{
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    const struct fgv_device_facts *facts = fgv_device_facts(context->ordinal);
    for (uint32_t i = 0; i < FGV_FACTS_NR_LIMITS; i++) {
        context->limits[i] = (size_t)facts->limits[i];
    }
    atomic_store_explicit(&context->limits_known, UINT32_MAX, memory_order_relaxed);
    atomic_store_explicit(&context->yield_word, 0, memory_order_relaxed);
}

/* Gives a context its number. */
static CUresult context_start(struct fgv_context *context, uint32_t ordinal, uint32_t flags, bool is_primary)
{
    uint64_t handle;
    CUresult result = fgv_handle_new(FGV_HANDLE_CONTEXT, &handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_init(&context->lock, NULL);
    context->ordinal = ordinal;
    context->flags = flags;
    context->is_primary = is_primary;
    context->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    context_reset(context);
    atomic_store_explicit(&context->is_made, 0, memory_order_relaxed);
    atomic_store_explicit(&context->nr_retained, 0, memory_order_relaxed);
    atomic_store_explicit(&context->is_active, !is_primary, memory_order_relaxed);
    fgv_handle_set_object(FGV_HANDLE_CONTEXT, handle, context);
    atomic_store_explicit(&context->handle, handle, memory_order_release);
    return CUDA_SUCCESS;
}

CUresult fgv_context_primary(uint32_t ordinal, struct fgv_context **context)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books);
    *context = &primaries[ordinal];
    if (fgv_context_handle(*context) == 0) {
        result = context_start(*context, ordinal, 0, true);
    }
    pthread_mutex_unlock(&books);
    return result;
}

struct fgv_context *fgv_context_find(CUcontext context)
{
    if (!context) {
        return fgv_context_usable(fgv_thread.context, fgv_thread.current) == CUDA_SUCCESS ? fgv_thread.context : NULL;
    }
    return fgv_handle_object(FGV_HANDLE_CONTEXT, (uint64_t)(uintptr_t)context);
}

CUresult fgv_context_current(struct fgv_context **context)
{
    CUresult result = fgv_call_allowed();
    *context = fgv_thread.context;
    return result;
}

CUresult fgv_context_make(struct fgv_context *context, uint64_t handle)
{
    if (fgv_context_is_ready(context, handle)) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&context->lock);
    CUresult result = fgv_context_usable(context, handle);
    if (result == CUDA_SUCCESS && !fgv_context_is_ready(context, handle)) {
        struct fgv_call call;
        struct fgv_request_context_create *request =
            fgv_call_begin_for(&call, FGV_CALL_context_create, sizeof(*request), 0, 0);
        if (!request) {
            result = call.error;
        } else {
            *request = (struct fgv_request_context_create){.handle = handle,
                                                           .device = fgv_guest.devices[context->ordinal],
                                                           .flags = context->flags,
                                                           .is_primary = context->is_primary};
            result = fgv_call_wait(&call, NULL, 0);
        }
        if (result == CUDA_SUCCESS) {
            atomic_store_explicit(&context->is_made, 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&context->lock);
    return result;
}

/* Takes everything back that lived in the context; the handle is still valid when it is called. */
static CUresult context_unmake(struct fgv_context *context, bool is_released)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t handle = fgv_context_handle(context);
    fgv_handshake_context_destroyed(fgv_context_public(handle));
    pthread_mutex_lock(&context->lock);
    if (atomic_load_explicit(&context->is_made, memory_order_acquire) != 0) {
        fgv_context_ops->release(context);
        struct fgv_call call;
        struct fgv_request_context_destroy *request =
            fgv_call_begin_for(&call, FGV_CALL_context_destroy, sizeof(*request), 0, handle);
        if (request) {
            *request = (struct fgv_request_context_destroy){.handle = handle, .is_released = is_released};
        }
        result = !request ? call.error : fgv_call_wait(&call, NULL, 0);
        atomic_store_explicit(&context->is_made, 0, memory_order_release);
    }
    pthread_mutex_unlock(&context->lock);
    fgv_context_ops->forget(context);
    context_reset(context);
    return result;
}

/* ---- primary contexts ---- */

static CUresult primary_of(CUdevice device, struct fgv_context **context)
{
    CUresult result = fgv_device_check(device);
    return result != CUDA_SUCCESS ? result : fgv_context_primary((uint32_t)device, context);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct fgv_context *context;
    CUresult result = primary_of(dev, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atomic_load_explicit(&context->is_active, memory_order_relaxed) == 0) {
        result = fgv_call_sticky_error(); /* after a fault the process gets no context any more */
        if (result != CUDA_SUCCESS) {
            return result;
        }
        atomic_store_explicit(&context->is_active, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&context->nr_retained, 1, memory_order_relaxed);
    *pctx = fgv_context_public(fgv_context_handle(context));
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct fgv_context *context;
    CUresult result = primary_of(dev, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint32_t nr_retained = atomic_load_explicit(&context->nr_retained, memory_order_relaxed);
    do {
        if (nr_retained == 0) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (nr_retained == 1) {
            result = context_unmake(context, true);
            atomic_store_explicit(&context->is_active, 0, memory_order_relaxed);
            atomic_store_explicit(&context->nr_retained, 0, memory_order_relaxed);
            return result;
        }
    } while (!atomic_compare_exchange_weak_explicit(&context->nr_retained, &nr_retained, nr_retained - 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    return CUDA_SUCCESS;
}

bool fgv_context_flags_are_sound(unsigned int flags)
{
    const unsigned int schedule = flags & (unsigned)CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 && schedule != 3 && schedule <= CU_CTX_SCHED_BLOCKING_SYNC;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    struct fgv_context *context;
    CUresult result = primary_of(dev, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_context_flags_are_sound(flags) || (flags & CU_CTX_MAP_HOST) != 0) { /* it has that anyway */
        return CUDA_ERROR_INVALID_VALUE;
    }
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct fgv_context *context;
    CUresult result = primary_of(dev, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!flags || !active) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = context->flags;
    *active = atomic_load_explicit(&context->is_active, memory_order_relaxed) != 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    struct fgv_context *context;
    CUresult result = primary_of(dev, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_unmake(context, false); /* the next that retains it makes a fresh one */
    atomic_store_explicit(&context->is_active, 0, memory_order_relaxed);
    context->flags = 0;
    return result;
}

/* ---- contexts of the program's own ---- */

/* One for this device that was destroyed: a thread in which it is current still asks it for its device. */
static struct fgv_context *context_again(uint32_t ordinal)
{
    struct fgv_context **link = &free_contexts, *context;
    pthread_mutex_lock(&books);
    while (*link && (*link)->ordinal != ordinal) {
        link = &(*link)->next_free;
    }
    context = *link;
    if (context) {
        *link = context->next_free;
    }
    pthread_mutex_unlock(&books);
    return context;
}

static CUresult context_create(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    CUresult result = fgv_device_check(dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pctx || !fgv_context_flags_are_sound(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_context *context = context_again((uint32_t)dev);
    if (!context) {
        context = calloc(1, sizeof(*context));
    }
    if (!context) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if ((flags & CU_CTX_USER_COREDUMP_ENABLE) != 0) { /* the driver's answer for it is that for all dumps */
        flags = (flags & ~(unsigned)CU_CTX_USER_COREDUMP_ENABLE) | CU_CTX_COREDUMP_ENABLE;
    }
    result = context_start(context, (uint32_t)dev, flags, false);
    if (result == CUDA_SUCCESS) {
        result = fgv_context_make(context, fgv_context_handle(context));
    }
    CUcontext handle = fgv_context_public(fgv_context_handle(context));
    if (result == CUDA_SUCCESS) {
        result = cuCtxPushCurrent_v2(handle);
    }
    if (result != CUDA_SUCCESS) {
        if (handle) {
            cuCtxDestroy_v2(handle);
        } else {
            free(context);
        }
        return result;
    }
    *pctx = handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return context_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev)
{
    if (numParams < 0 || (numParams > 0 && !paramsArray)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return numParams > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : context_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    if (ctxCreateParams && ctxCreateParams->numExecAffinityParams > 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    if (ctxCreateParams && ctxCreateParams->cigParams) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return context_create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!ctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_context *context = fgv_handle_object(FGV_HANDLE_CONTEXT, (uint64_t)(uintptr_t)ctx);
    if (!context || context->is_primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    result = context_unmake(context, false);
    uint64_t handle = fgv_context_handle(context);
    if (fgv_thread.current == handle) {
        cuCtxPopCurrent_v2(NULL);
    }
    atomic_store_explicit(&context->handle, 0, memory_order_release);
    fgv_handle_drop(FGV_HANDLE_CONTEXT, handle);
    pthread_mutex_lock(&books);
    context->next_free = free_contexts;
    free_contexts = context;
    pthread_mutex_unlock(&books);
    return result;
}
