#include "client/stream.h"

#include <stdlib.h>

#include "client/state.h"

void fgv_stream_init(struct fgv_stream *stream, struct fgv_context *context, CUstream native)
{
    *stream = (struct fgv_stream){.native = native, .context = context, .next = context->streams};
    context->streams = stream;
}

struct fgv_stream *fgv_stream_new(struct fgv_context *context, CUstream native)
{
    struct fgv_stream *stream = malloc(sizeof(*stream));
    if (stream) {
        fgv_stream_init(stream, context, native);
    }
    return stream;
}

void fgv_stream_remove(struct fgv_stream *stream)
{
    struct fgv_stream **link = &stream->context->streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
}

void fgv_stream_free_if_unused(struct fgv_stream *stream)
{
    if (stream->is_gone && !stream->is_busy && stream->nr_waiters == 0) {
        fgv_stream_remove(stream);
        free(stream);
    }
}

/* The driver's status of a capture: true also when asking is an error, as for the legacy stream beside a capturing one.
 */
bool fgv_stream_is_captured(struct fgv_worker *worker, const struct fgv_stream *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (worker->nr_captures == 0 || !worker->driver.cuStreamIsCapturing) {
        return false;
    }
    CUresult result = worker->driver.cuStreamIsCapturing(stream->native, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

void fgv_stream_capture_begins(struct fgv_worker *worker, struct fgv_stream *stream, uint64_t graph)
{
    stream->is_capture_origin = true;
    stream->capture_graph = graph;
    worker->nr_captures++;
}

void fgv_stream_capture_ends(struct fgv_worker *worker, struct fgv_stream *stream)
{
    stream->is_capture_origin = false;
    stream->capture_graph = 0;
    worker->nr_captures--;
}
