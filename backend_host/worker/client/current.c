#include "client/current.h"

#include "client/handles.h"
#include "client/state.h"
#include "client/stream.h"

void fgv_context_make_current(struct fgv_worker *worker, struct fgv_context *context)
{
    if (worker->current != context &&
        worker->driver.cuCtxSetCurrent(context ? context->native : NULL) == CUDA_SUCCESS) {
        worker->current = context;
    }
}

CUresult fgv_context_enter(struct fgv_worker *worker, uint32_t number)
{
    if (worker->current && (uint32_t)worker->current->handle == number) {
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; number != 0 && i < FGV_MAX_CONTEXTS; i++) {
        if (worker->contexts[i] && (uint32_t)worker->contexts[i]->handle == number) {
            fgv_context_make_current(worker, worker->contexts[i]);
            return worker->current == worker->contexts[i] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
        }
    }
    return CUDA_ERROR_INVALID_CONTEXT;
}

struct fgv_context *fgv_context_find(struct fgv_worker *worker, uint64_t handle)
{
    for (uint32_t i = 0; handle != 0 && i < FGV_MAX_CONTEXTS; i++) {
        if (worker->contexts[i] && worker->contexts[i]->handle == handle) {
            return worker->contexts[i];
        }
    }
    return NULL;
}

struct fgv_context *fgv_context_any(struct fgv_worker *worker)
{
    for (uint32_t i = 0; i < FGV_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            return worker->contexts[i];
        }
    }
    return NULL;
}

bool fgv_context_add(struct fgv_worker *worker, struct fgv_context *context)
{
    for (uint32_t i = 0; i < FGV_MAX_CONTEXTS; i++) {
        if (!worker->contexts[i]) {
            worker->contexts[i] = context;
            return true;
        }
    }
    return false;
}

void fgv_context_remove(struct fgv_worker *worker, const struct fgv_context *context)
{
    for (uint32_t i = 0; i < FGV_MAX_CONTEXTS; i++) {
        if (worker->contexts[i] == context) {
            worker->contexts[i] = NULL;
        }
    }
}

void fgv_context_none_is_current(struct fgv_worker *worker)
{
    worker->current = NULL;
}

CUresult fgv_context_warm(struct fgv_worker *worker)
{
    return worker->warm ? CUDA_SUCCESS : worker->driver.cuDevicePrimaryCtxRetain(&worker->warm, worker->device);
}

void fgv_context_cool(struct fgv_worker *worker)
{
    if (worker->warm) {
        worker->driver.cuDevicePrimaryCtxRelease_v2(worker->device);
        worker->warm = NULL;
    }
}

bool fgv_is_recording(struct fgv_worker *worker, uint64_t stream_number)
{
    struct fgv_stream *stream = worker->nr_captures != 0 ? fgv_stream_find(worker, stream_number) : NULL;
    return stream && fgv_stream_is_captured(worker, stream);
}
