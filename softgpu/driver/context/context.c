/*
 * Contexts: the primary one of each device, and others. A primary context's record lives for ever; it is active between
 * the first retain and the last release, and only then has streams and memory.
 */
#include <string.h>

#include "base/state.h"
#include "code/module.h"
#include "cuda_api/handshake.h"
#include "cuda_api/prototypes.h"
#include "device/printf.h"
#include "memory/memory_map.h"
#include "memory/texture.h"
#include "stream/capture.h"
#include "stream/queue.h"
#include "stream/stream.h"

#define DEFAULT_API_VERSION 3020

static const uint64_t default_limits[SGP_NR_LIMITS] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1048576,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0,
    [CU_LIMIT_SHMEM_SIZE] = 0,
};

static CUresult context_activate(struct CUctx_st *context, unsigned int flags, unsigned int api_version)
{
    CUresult failure = context->device->fault ? context->device->fault : sgp_state_failure(context->device->state);

    if (failure) {
        return failure;
    }
    if (!sgp_queue_start()) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->id = sgp_new_id();
    context->flags = flags;
    context->api_version = api_version;
    context->error = CUDA_SUCCESS;
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    memcpy(context->limits, default_limits, sizeof(context->limits));
    context->device_heap_bytes = 0;
    context->printf_buffer = sgp_printf_new(context->limits[CU_LIMIT_PRINTF_FIFO_SIZE]);
    context->legacy = sgp_stream_new(context, CU_STREAM_DEFAULT, 0);
    if (!context->legacy || !context->printf_buffer) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->is_active = true;
    return CUDA_SUCCESS;
}

/* Everything in the context goes; its record and, for a primary one, its handle stay. The lock is given up meanwhile.
 */
static void context_empty(struct CUctx_st *context)
{
    context->is_ending = true;
    sgp_queue_drain(context);
    sgp_printf_flush(context);
    sgp_unlock();
    fgv_handshake_context_destroyed(context);
    sgp_lock();
    sgp_queue_drain(context);
    context->is_active = false;
    context->is_ending = false;
    while (context->modules) {
        sgp_module_delete(context->modules);
    }
    sgp_texture_delete_context(context);
    sgp_array_delete_context(context);
    while (context->events) {
        struct CUevent_st *event = context->events;

        context->events = event->next;
        sgp_object_remove(event);
        sgp_object_release(event);
    }
    while (context->streams) {
        struct CUstream_st *stream = context->streams;

        context->streams = stream->next;
        sgp_capture_stream_gone(stream);
        sgp_object_remove(stream);
        sgp_object_release(stream);
    }
    context->legacy = NULL;
    sgp_memory_delete_context(context);
    sgp_printf_delete(context->printf_buffer);
    context->printf_buffer = NULL;
}

static bool flags_are_ok(unsigned int flags)
{
    unsigned int schedule = flags & CU_CTX_SCHED_MASK;

    return !(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) && (schedule <= 2 || schedule == 4);
}

SGP_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct sgp_device *device;
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), pctx);

    if (result) {
        return result;
    }
    context = sgp_context_primary(device);
    if (!context) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (!context->is_active) {
        result = context_activate(context, device->primary_flags, DEFAULT_API_VERSION);
    }
    if (!result) {
        device->nr_primary_retains++;
        *pctx = context;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!device->nr_primary_retains) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--device->nr_primary_retains == 0 && device->primary->is_active) {
        context_empty(device->primary);
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    /* Whoever retained the context still has to release it; it comes back when it is retained again. */
    if (device->primary && device->primary->is_active) {
        context_empty(device->primary);
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!flags_are_ok(flags) || (flags & CU_CTX_MAP_HOST)) { /* it has that anyway */
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    device->primary_flags = flags;
    if (device->primary) {
        device->primary->flags = flags;
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!flags || !active) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = device->primary_flags;
    *active = device->primary && device->primary->is_active;
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult create(CUcontext *pctx, unsigned int flags, CUdevice dev, unsigned int api_version)
{
    struct sgp_device *device;
    struct CUctx_st *context;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!pctx || !flags_are_ok(flags)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    context = sgp_context_new(device);
    if (!context) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (flags & CU_CTX_USER_COREDUMP_ENABLE) { /* told as the flag for all dumps, as by NVIDIA's driver */
        flags = (flags & ~(unsigned int)CU_CTX_USER_COREDUMP_ENABLE) | CU_CTX_COREDUMP_ENABLE;
    }
    result = context_activate(context, flags, api_version);
    if (!result) {
        result = sgp_context_push(context);
    }
    if (!result) {
        *pctx = context;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return create(pctx, flags, dev, DEFAULT_API_VERSION);
}

SGP_EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                                   CUdevice dev)
{
    (void)paramsArray;
    return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev, DEFAULT_API_VERSION);
}

SGP_EXPORT CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                                   CUdevice dev)
{
    if (ctxCreateParams && ctxCreateParams->numExecAffinityParams) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    if (ctxCreateParams && ctxCreateParams->cigParams) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create(pctx, flags, dev, DEFAULT_API_VERSION);
}

SGP_EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    CUresult result = sgp_with_argument(sgp_enter_driver(), ctx);

    if (result) {
        return result;
    }
    if (!sgp_object_is(ctx, SGP_CONTEXT) || ctx->is_primary || !ctx->is_active) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    context_empty(ctx);
    for (struct CUctx_st **link = &sgp_contexts; *link; link = &(*link)->next) {
        if (*link == ctx) {
            *link = ctx->next;
            break;
        }
    }
    sgp_object_remove(ctx);
    if (sgp_context_current() == ctx) {
        sgp_context_pop();
    }
    sgp_object_release(ctx);
    return sgp_leave(CUDA_SUCCESS);
}

/* The context of a call that takes one, where NULL means the current one. */
static CUresult enter_context(CUcontext ctx, struct CUctx_st **context)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    *context = ctx ? ctx : sgp_context_current();
    if (!*context || (ctx && !sgp_object_is(ctx, SGP_CONTEXT))) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(enter_context(ctx, &context), device);

    if (result) {
        return result;
    }
    *device = context->device->ordinal; /* of one that was destroyed, too */
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

SGP_EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(sgp_enter_unchecked(&context), flags);

    if (result) {
        return result;
    }
    *flags = context->flags | (context->is_primary ? CU_CTX_MAP_HOST : 0);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!flags_are_ok(flags)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    context->flags = flags & (CU_CTX_SCHED_MASK | CU_CTX_LMEM_RESIZE_TO_MAX); /* the others are for cuCtxCreate */
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(enter_context(ctx, &context), ctxId);

    if (result) {
        return result;
    }
    if (!context->is_active) {
        return sgp_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    *ctxId = context->id;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(enter_context(ctx, &context), version);

    if (result) {
        return result;
    }
    if (!context->is_active) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    *version = context->api_version;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (leastPriority) {
        *leastPriority = SGP_LEAST_PRIORITY;
    }
    if (greatestPriority) {
        *greatestPriority = SGP_GREATEST_PRIORITY;
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    struct CUctx_st *context;
    CUresult result = enter_context(ctx, &context);

    if (result) {
        return result;
    }
    if (!context->is_active) {
        return sgp_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    result = sgp_capture_forbid_context(context);
    if (result) {
        return sgp_leave(result);
    }
    sgp_object_keep(context);
    sgp_queue_drain(context);
    result = context->error;
    sgp_printf_flush(context);
    sgp_object_release(context);
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}
