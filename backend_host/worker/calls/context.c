/*
 * Contexts of the client. Each request names the one that is current in its thread; the driver is told only when it is
 * another than before.
 *
 * The primary context was retained before there was a client. When the guest gives it up, both references go, so that
 * everything in it is really gone, as it would be in a process of the guest's own.
 */
#include "calls/context.h"

#include <stdlib.h>

#include "calls/host_function.h"
#include "calls/memory.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "parts/lane.h"
#include "parts/variant.h"
#include "track/sync.h"

/* Those scheduling flags say how a thread of the program waits in the driver; the worker never waits there. */
#define PASSED_FLAGS (CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS)

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
    result = make_native(worker, fixed, device, &native);
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    context->handle = fixed->handle;
    context->native = native;
    context->device = device;
    context->is_primary = fixed->is_primary != 0;
    fgw_stream_init(&context->legacy, context, NULL);
    fgw_stream_init(&context->per_thread, context, CU_STREAM_PER_THREAD);
    fgw_context_add(worker, context);
    fgw_worker_bind(worker, FGV_HANDLE_CONTEXT, fixed->handle, native);
    fgw_context_none_is_current(worker); /* whatever the driver left current */
    fgw_context_make_current(worker, context);
    fgw_memory_pin(worker);
    return CUDA_SUCCESS;
}

CUresult fgw_context_destroy(struct fgw_worker *worker, struct fgw_context *context)
{
    fgw_context_make_current(worker, context);
    fgw_memory_unpin(worker);
    fgw_host_let_go(worker, context);
    fgw_sync_drop_context(worker, context);
    fgw_variants_drop_context(worker, context);
    fgw_handles_drop_context(worker, context);
    fgw_lanes_drop(worker, context);
    fgw_memory_drop_context(worker, context);
    worker->driver.cuCtxSetCurrent(NULL);
    fgw_context_none_is_current(worker);
    CUresult result;
    if (context->is_primary) {
        result = worker->driver.cuDevicePrimaryCtxRelease_v2(context->device);
        fgw_context_cool(worker);
    } else {
        result = worker->driver.cuCtxDestroy_v2(context->native);
    }
    fgw_host_gone(worker, context);
    fgw_context_remove(worker, context);
    free(context);
    struct fgw_context *other = fgw_context_any(worker);
    if (other) {
        fgw_context_make_current(worker, other);
        fgw_memory_pin(worker);
    }
    return result;
}

CUresult fgw_serve_context_destroy(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_context_destroy *fixed = request->fixed;
    (void)reply;
    struct fgw_context *context = fgw_context_find(worker, fixed->handle);
    return context ? fgw_context_destroy(worker, context) : CUDA_ERROR_INVALID_CONTEXT;
}
