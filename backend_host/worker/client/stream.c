#include "client/stream.h"

#include <stdlib.h>

#include "client/state.h"
#include "client/taken.h"
#include "page/account.h"

void fgw_stream_init(struct fgw_stream *stream, struct fgw_context *context, CUstream native)
{
    *stream = (struct fgw_stream){.native = native, .context = context, .next = context->streams};
    context->streams = stream;
}

struct fgw_stream *fgw_stream_new(struct fgw_context *context, CUstream native)
{
    struct fgw_stream *stream = malloc(sizeof(*stream));
    if (stream) {
        fgw_stream_init(stream, context, native);
    }
    return stream;
}

static bool take(struct fgw_worker *worker)
{
    if (!fgw_limit_take(&worker->grantee, FGW_LIMITED_STREAMS, 1)) {
        return false;
    }
    if (!fgw_taken_take(worker, FGW_FOR_STREAMS, worker->costs.stream_bytes)) {
        fgw_limit_give(&worker->grantee, FGW_LIMITED_STREAMS, 1);
        return false;
    }
    return true;
}

static void give(struct fgw_worker *worker)
{
    fgw_taken_give(worker, FGW_FOR_STREAMS, worker->costs.stream_bytes);
    fgw_limit_give(&worker->grantee, FGW_LIMITED_STREAMS, 1);
}

bool fgw_stream_has_room(struct fgw_worker *worker)
{
    const bool has_room = take(worker);
    if (has_room) {
        give(worker);
    }
    return has_room;
}

/* Another worker of the vGPU may have taken the last room since: then the new stream goes. */
CUresult fgw_stream_attach(struct fgw_worker *worker, struct fgw_handle *handle)
{
    const bool is_taken = take(worker);
    handle->object = is_taken && worker->current ? fgw_stream_new(worker->current, handle->native) : NULL;
    if (handle->object) {
        return CUDA_SUCCESS;
    }
    if (is_taken) {
        give(worker);
    }
    if (worker->driver.cuStreamDestroy_v2) {
        worker->driver.cuStreamDestroy_v2(handle->native);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void fgw_stream_gone(struct fgw_worker *worker)
{
    give(worker);
}

void fgw_stream_remove(struct fgw_stream *stream)
{
    struct fgw_stream **link = &stream->context->streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
}

void fgw_stream_free_if_unused(struct fgw_stream *stream)
{
    if (stream->is_gone && !stream->is_busy && stream->nr_waiters == 0) {
        fgw_stream_remove(stream);
        free(stream);
    }
}

bool fgw_stream_is_blocking(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    unsigned int flags = CU_STREAM_NON_BLOCKING;
    return worker->driver.cuStreamGetFlags && worker->driver.cuStreamGetFlags(stream->native, &flags) == CUDA_SUCCESS &&
           (flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* The driver's status of a capture: true also when asking is an error, as for the legacy stream beside a capturing one.
 */
bool fgw_stream_is_captured(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (worker->nr_captures == 0 || !worker->driver.cuStreamIsCapturing) {
        return false;
    }
    CUresult result = worker->driver.cuStreamIsCapturing(stream->native, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

void fgw_stream_capture_begins(struct fgw_worker *worker, struct fgw_stream *stream, uint64_t graph)
{
    stream->is_capture_origin = true;
    stream->capture_graph = graph;
    worker->nr_captures++;
}

void fgw_stream_capture_ends(struct fgw_worker *worker, struct fgw_stream *stream)
{
    stream->is_capture_origin = false;
    stream->capture_graph = 0;
    worker->nr_captures--;
}

CUstream fgw_stream_side(struct fgw_worker *worker)
{
    struct fgw_context *context = worker->current;
    if (!context->side_stream &&
        worker->driver.cuStreamCreate(&context->side_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        context->side_stream = NULL;
    }
    return context->side_stream;
}
