#include "client/current.h"

#include "client/handles.h"
#include "client/state.h"
#include "client/stream.h"
#include "client/taken.h"

CUresult fgw_context_make_current(struct fgw_worker *worker, struct fgw_context *context)
{
    if (worker->current == context) {
        return CUDA_SUCCESS;
    }
    const CUresult result = worker->driver.cuCtxSetCurrent(context ? context->native : NULL);
    if (result == CUDA_SUCCESS) {
        worker->current = context;
    }
    return result;
}

CUresult fgw_context_enter(struct fgw_worker *worker, uint32_t number)
{
    if (worker->current && (uint32_t)worker->current->handle == number) {
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; number != 0 && i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i] && (uint32_t)worker->contexts[i]->handle == number) {
            return fgw_context_make_current(worker, worker->contexts[i]);
        }
    }
    return CUDA_ERROR_INVALID_CONTEXT;
}

struct fgw_context *fgw_context_find(struct fgw_worker *worker, uint64_t handle)
{
    for (uint32_t i = 0; handle != 0 && i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i] && worker->contexts[i]->handle == handle) {
            return worker->contexts[i];
        }
    }
    return NULL;
}

struct fgw_context *fgw_context_any(const struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            return worker->contexts[i];
        }
    }
    return NULL;
}

uint32_t fgw_context_count(const struct fgw_worker *worker)
{
    uint32_t nr = 0;
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        nr += worker->contexts[i] != NULL;
    }
    return nr;
}

bool fgw_context_add(struct fgw_worker *worker, struct fgw_context *context)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (!worker->contexts[i]) {
            worker->contexts[i] = context;
            context->home = (uint8_t)(i + 1);
            return true;
        }
    }
    return false;
}

void fgw_context_remove(struct fgw_worker *worker, const struct fgw_context *context)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i] == context) {
            worker->contexts[i] = NULL;
        }
    }
}

static void exchange_natives(struct fgw_context *one, struct fgw_context *other)
{
    const CUcontext native = one->native;
    const CUdevice device = one->device;
    one->native = other->native;
    one->device = other->device;
    other->native = native;
    other->device = device;
}

void fgw_contexts_exchange(struct fgw_worker *worker, struct fgw_worker *other)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            exchange_natives(worker->contexts[i], fgw_context_find(other, worker->contexts[i]->handle));
        }
    }
    const CUcontext warm = worker->warm;
    const CUdevice device = worker->device;
    worker->warm = other->warm;
    worker->device = other->device;
    other->warm = warm;
    other->device = device;
    struct fgw_context *current = worker->current;
    fgw_context_none_is_current(worker);
    fgw_context_make_current(worker, current);
}

void fgw_context_none_is_current(struct fgw_worker *worker)
{
    worker->current = NULL;
}

CUresult fgw_context_warm(struct fgw_worker *worker)
{
    if (worker->warm) {
        return CUDA_SUCCESS;
    }
    return fgw_taken_primary(worker) ? worker->driver.cuDevicePrimaryCtxRetain(&worker->warm, worker->device)
                                     : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fgw_context_cool(struct fgw_worker *worker)
{
    CUresult result = CUDA_SUCCESS;
    if (worker->warm) {
        result = worker->driver.cuDevicePrimaryCtxRelease_v2(worker->device);
        worker->warm = NULL;
    }
    fgw_taken_primary_gone(worker);
    return result;
}

bool fgw_is_recording(struct fgw_worker *worker, uint64_t stream_number)
{
    struct fgw_stream *stream = worker->nr_captures != 0 ? fgw_stream_find(worker, stream_number) : NULL;
    return stream && fgw_stream_is_captured(worker, stream);
}
