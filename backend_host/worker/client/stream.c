#include "client/stream.h"

#include <stdlib.h>

#include "client/state.h"

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

CUresult fgw_stream_attach(struct fgw_worker *worker, struct fgw_handle *handle)
{
    handle->object = worker->current ? fgw_stream_new(worker->current, handle->native) : NULL;
    return handle->object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
