/*
 * The end of streams and contexts, as far as their work is concerned. A destroyed stream's work may still run, and its
 * marks are looked at until they have ended; of a context that is destroyed nothing is heard any more.
 */
#include "track/ends.h"

#include <stdlib.h>

#include "client/handles.h"
#include "client/stream.h"
#include "page/bell.h"
#include "track/latency.h"
#include "track/sync.h"

void fgw_stream_before_destroy(struct fgw_worker *worker, const struct fgw_request *request)
{
    const uint64_t number = ((const struct fgv_request_cuStreamDestroy_v2 *)request->fixed)->hStream;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_STREAM, number);
    if (handle.number != 0) {
        fgw_stream_mark(worker, handle.object);
    }
}

void fgw_stream_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_stream *stream = handle->object;
    fgw_stream_gone(worker);
    stream->is_gone = true;
    if (stream->is_capture_origin) {
        const uint64_t graph = stream->capture_graph;
        fgw_stream_capture_ends(worker, stream);
        fgw_worker_unbind(worker, FGV_HANDLE_GRAPH, graph);
    }
    fgw_sync_end_marks(worker, stream);
    fgw_stream_free_if_unused(stream);
}

void fgw_stream_drop_context(struct fgw_worker *worker, struct fgw_context *context)
{
    for (struct fgw_stream *stream = context->streams; stream; stream = stream->next) {
        fgw_sync_finish_stream(worker, stream, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    worker->track->listener->dropped(worker, context);
    fgw_sync_poll(worker, fgw_clock_ns()); /* takes its streams off the list of busy ones */
    fgw_track_leave(worker, context);
}

bool fgw_track_is_still(struct fgw_worker *worker)
{
    bool is_still = true;
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_stream *stream = worker->contexts[i] ? worker->contexts[i]->streams : NULL;
        for (; stream; stream = stream->next) {
            if (stream->last_seq > stream->done_seq) {
                fgw_stream_mark(worker, stream);
                is_still = false;
            }
        }
    }
    return is_still;
}

uint32_t fgw_track_leave(struct fgw_worker *worker, struct fgw_context *context)
{
    uint32_t nr = 0;
    fgw_latency_drop_context(worker, context);
    for (; context->free_marks; nr++) {
        struct fgw_mark *mark = context->free_marks;
        context->free_marks = mark->next;
        worker->driver.cuEventDestroy_v2(mark->event);
        free(mark);
    }
    return nr;
}

void fgw_track_enter(struct fgw_worker *worker, struct fgw_context *context, uint32_t nr_marks)
{
    for (uint32_t i = 0; i < nr_marks; i++) {
        struct fgw_mark *mark = calloc(1, sizeof(*mark));
        if (!mark || worker->driver.cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            free(mark);
            return;
        }
        mark->next = context->free_marks;
        context->free_marks = mark;
    }
}
