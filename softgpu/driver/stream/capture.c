/*
 * Streams that are being captured. What such a stream is given becomes a node of the capture's graph, behind the nodes
 * that the stream did before; an event recorded in it carries those nodes to other streams, which join the capture when
 * they wait for it. What CUDA forbids beside a capture is refused and invalidates it. What the nodes are is the sink's
 * affair (capture_graph.c).
 */
#include "stream/capture.h"

#include <stdlib.h>

#include "cuda_api/prototypes.h"

static struct sgp_capture *captures; /* that are not over */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread uint64_t thread_id;

/* Of the calling thread, never used twice. With the lock. */
static uint64_t own_thread(void)
{
    if (!thread_id) {
        thread_id = sgp_new_id();
    }
    return thread_id;
}

static void capture_release(struct sgp_capture *capture)
{
    if (--capture->nr_references == 0) {
        sgp_object_release(capture->context);
        free(capture);
    }
}

bool sgp_nodes_add(struct sgp_nodes *nodes, struct CUgraphNode_st *node)
{
    struct CUgraphNode_st **grown;

    for (uint32_t i = 0; i < nodes->nr; i++) {
        if (nodes->items[i] == node) {
            return true;
        }
    }
    grown = realloc(nodes->items, (nodes->nr + 1) * sizeof(*grown));
    if (!grown) {
        return false;
    }
    nodes->items = grown;
    nodes->items[nodes->nr++] = node;
    return true;
}

static void nodes_clear(struct sgp_nodes *nodes)
{
    free(nodes->items);
    *nodes = (struct sgp_nodes){0};
}

void sgp_nodes_replace(struct sgp_nodes *nodes, const struct sgp_nodes *by)
{
    free(nodes->items);
    *nodes = *by;
}

static void stream_leave(struct CUstream_st *stream)
{
    capture_release(stream->capture);
    stream->capture = NULL;
    nodes_clear(&stream->captured);
}

static void stream_join(struct CUstream_st *stream, struct sgp_capture *capture)
{
    stream->capture = capture;
    capture->nr_references++;
}

CUresult sgp_capture_invalidate(struct sgp_capture *capture, CUresult result)
{
    capture->is_invalidated = true;
    return result;
}

CUresult sgp_capture_begin(struct CUstream_st *stream, const struct sgp_sink *sink, struct CUgraph_st *graph,
                           bool is_into_graph, CUstreamCaptureMode mode)
{
    struct sgp_capture *capture = calloc(1, sizeof(*capture));

    if (!capture) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct sgp_capture){
        .sink = sink,
        .nr_references = 1,
        .next = captures,
        .graph = graph,
        .origin = stream,
        .context = stream->object.context,
        .id = sgp_new_id(),
        .mode = mode,
        .thread = own_thread(),
        .is_into_graph = is_into_graph,
    };
    sgp_object_keep(capture->context);
    captures = capture;
    stream_join(stream, capture);
    return CUDA_SUCCESS;
}

bool sgp_capture_is_own(const struct sgp_capture *capture)
{
    return capture->thread == own_thread();
}

bool sgp_graph_is_captured(const struct CUgraph_st *graph)
{
    for (const struct sgp_capture *capture = captures; capture; capture = capture->next) {
        if (capture->graph == graph) {
            return true;
        }
    }
    return false;
}

void sgp_capture_end(struct sgp_capture *capture, bool keeps_graph)
{
    struct sgp_capture **link = &captures;

    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    capture->is_over = true;
    for (struct CUstream_st *stream = capture->context->streams; stream; stream = stream->next) {
        if (stream->capture == capture) {
            stream_leave(stream);
        }
    }
    if (!keeps_graph && !capture->is_into_graph) {
        capture->sink->drop(capture->graph);
    }
    capture->graph = NULL;
    capture_release(capture);
}

void sgp_capture_stream_gone(struct CUstream_st *stream)
{
    struct sgp_capture *capture = stream->capture;

    if (!capture) {
        return;
    }
    capture->is_invalidated = true;
    if (capture->origin == stream) {
        sgp_capture_end(capture, false);
    } else {
        stream_leave(stream);
    }
}

struct sgp_capture *sgp_capture_blocking(const struct CUctx_st *context)
{
    for (const struct CUstream_st *stream = context->streams; stream; stream = stream->next) {
        if (stream->capture && stream->is_blocking) {
            return stream->capture;
        }
    }
    return NULL;
}

CUresult sgp_capture_check(struct CUstream_st *stream)
{
    struct sgp_capture *capture = stream->capture;

    if (!captures) {
        return CUDA_SUCCESS;
    }
    if (capture) {
        return capture->is_invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                       : sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    capture = stream == stream->object.context->legacy ? sgp_capture_blocking(stream->object.context) : NULL;
    return capture ? sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

CUresult sgp_capture_forbid_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;

    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    for (struct sgp_capture *capture = captures; capture; capture = capture->next) {
        bool is_own = capture->thread == own_thread() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool is_everyones =
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (is_own || is_everyones) {
            result = sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

CUresult sgp_capture_forbid_context(const struct CUctx_st *context)
{
    CUresult result = CUDA_SUCCESS;

    for (struct sgp_capture *capture = captures; capture; capture = capture->next) {
        if (capture->context == context) {
            result = sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

/* ---- events ---- */

void sgp_capture_event_forget(struct CUevent_st *event)
{
    if (!event->capture) {
        return;
    }
    capture_release(event->capture);
    event->capture = NULL;
    nodes_clear(&event->captured);
}

CUresult sgp_capture_event_check(struct CUevent_st *event)
{
    return event->capture ? sgp_capture_invalidate(event->capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_SUCCESS;
}

CUresult sgp_capture_event_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    struct sgp_nodes nodes = {0};

    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        return stream->capture->sink->event(stream, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    }
    if (stream->capture->is_invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    for (uint32_t i = 0; i < stream->captured.nr; i++) {
        if (!sgp_nodes_add(&nodes, stream->captured.items[i])) {
            nodes_clear(&nodes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    sgp_capture_event_forget(event);
    event->capture = stream->capture;
    event->capture->nr_references++;
    sgp_nodes_replace(&event->captured, &nodes);
    return CUDA_SUCCESS;
}

CUresult sgp_capture_event_wait(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    struct sgp_capture *capture = event->capture;
    struct sgp_nodes nodes = {0};

    if (stream->capture && stream->capture->is_invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream->capture && (flags & CU_EVENT_WAIT_EXTERNAL)) {
        return stream->capture->sink->event(stream, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    }
    if (!capture) {
        return sgp_capture_invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (capture->is_over) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (capture->is_invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream == stream->object.context->legacy) {
        return sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (stream->capture && stream->capture != capture) {
        sgp_capture_invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    for (uint32_t i = 0; i < stream->captured.nr; i++) {
        sgp_nodes_add(&nodes, stream->captured.items[i]);
    }
    for (uint32_t i = 0; i < event->captured.nr; i++) {
        sgp_nodes_add(&nodes, event->captured.items[i]);
    }
    if (!stream->capture) {
        stream_join(stream, capture);
    }
    sgp_nodes_replace(&stream->captured, &nodes);
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!mode) { /* an unknown mode is taken; it is none of those that forgive */
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    thread_mode = *mode;
    *mode = before;
    return sgp_leave(CUDA_SUCCESS);
}
