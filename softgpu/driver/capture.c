/*
 * Streams that are being captured. What such a stream is given becomes a node of the capture's graph, behind the nodes
 * that the stream did before; an event recorded in it carries those nodes to other streams, which join the capture when
 * they wait for it. What CUDA forbids beside a capture is refused and invalidates it.
 */
#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graph.h"

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

void sgp_nodes_clear(struct sgp_nodes *nodes)
{
    free(nodes->items);
    *nodes = (struct sgp_nodes){0};
}

/* Makes `items`, `nr` the set of nodes, which is taken over. */
static void replace(struct CUgraphNode_st ***items, uint32_t *nr, struct sgp_nodes *nodes)
{
    free(*items);
    *items = nodes->items;
    *nr = nodes->nr;
}

static void stream_leave(struct CUstream_st *stream)
{
    capture_release(stream->capture);
    stream->capture = NULL;
    free(stream->captured);
    stream->captured = NULL;
    stream->nr_captured = 0;
}

static void stream_join(struct CUstream_st *stream, struct sgp_capture *capture)
{
    stream->capture = capture;
    capture->nr_references++;
}

static CUresult invalidate(struct sgp_capture *capture, CUresult result)
{
    capture->is_invalidated = true;
    return result;
}

/* Ends it everywhere; the graph goes unless it is the program's. */
static void capture_end(struct sgp_capture *capture, bool keeps_graph)
{
    struct sgp_capture **link = &sgp_driver.captures;

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
        sgp_graph_delete(capture->graph);
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
        capture_end(capture, false);
    } else {
        stream_leave(stream);
    }
}

static struct sgp_capture *blocking_capture(const struct CUctx_st *context)
{
    for (const struct CUstream_st *stream = context->streams; stream; stream = stream->next) {
        if (stream->capture && stream->is_blocking) {
            return stream->capture;
        }
    }
    return NULL;
}

CUresult sgp_capture_gate(struct CUstream_st *stream)
{
    struct sgp_capture *capture = stream->capture;

    if (!sgp_driver.captures) {
        return CUDA_SUCCESS;
    }
    if (capture) {
        return capture->is_invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                       : invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    capture = stream == stream->object.context->legacy ? blocking_capture(stream->object.context) : NULL;
    return capture ? invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

CUresult sgp_capture_forbid_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;

    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    for (struct sgp_capture *capture = sgp_driver.captures; capture; capture = capture->next) {
        bool is_own = capture->thread == own_thread() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool is_everyones =
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (is_own || is_everyones) {
            result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

CUresult sgp_capture_forbid_context(const struct CUctx_st *context)
{
    CUresult result = CUDA_SUCCESS;

    for (struct sgp_capture *capture = sgp_driver.captures; capture; capture = capture->next) {
        if (capture->context == context) {
            result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

CUresult sgp_capture_work(struct CUstream_st *stream, struct sgp_work *work)
{
    struct sgp_nodes behind = {0};
    struct CUgraphNode_st *node;
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    if (!stream->capture->is_invalidated) {
        result = sgp_node_add(stream->capture->graph, stream->captured, stream->nr_captured, work, &node);
        if (!result && !sgp_nodes_add(&behind, node)) {
            return invalidate(stream->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    if (result) {
        sgp_work_drop(work);
        return result;
    }
    replace(&stream->captured, &stream->nr_captured, &behind);
    return CUDA_SUCCESS;
}

/* ---- events ---- */

void sgp_capture_event_forget(struct CUevent_st *event)
{
    if (!event->capture) {
        return;
    }
    capture_release(event->capture);
    event->capture = NULL;
    free(event->captured);
    event->captured = NULL;
    event->nr_captured = 0;
}

CUresult sgp_capture_event_check(struct CUevent_st *event)
{
    return event->capture ? invalidate(event->capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_SUCCESS;
}

static CUresult event_node(struct CUstream_st *stream, struct CUevent_st *event, CUgraphNodeType type)
{
    struct sgp_work work = {.type = type, .event = event};

    sgp_object_hold(event);
    return sgp_capture_work(stream, &work);
}

CUresult sgp_capture_event_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    struct sgp_nodes nodes = {0};

    if (flags & CU_EVENT_RECORD_EXTERNAL) {
        return event_node(stream, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    }
    if (stream->capture->is_invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    for (uint32_t i = 0; i < stream->nr_captured; i++) {
        if (!sgp_nodes_add(&nodes, stream->captured[i])) {
            sgp_nodes_clear(&nodes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    sgp_capture_event_forget(event);
    event->capture = stream->capture;
    event->capture->nr_references++;
    replace(&event->captured, &event->nr_captured, &nodes);
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
        return event_node(stream, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    }
    if (!capture) {
        return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (capture->is_over) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (capture->is_invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream == stream->object.context->legacy) {
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (stream->capture && stream->capture != capture) {
        invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    for (uint32_t i = 0; i < stream->nr_captured; i++) {
        sgp_nodes_add(&nodes, stream->captured[i]);
    }
    for (uint32_t i = 0; i < event->nr_captured; i++) {
        sgp_nodes_add(&nodes, event->captured[i]);
    }
    if (!stream->capture) {
        stream_join(stream, capture);
    }
    replace(&stream->captured, &stream->nr_captured, &nodes);
    return CUDA_SUCCESS;
}

/* ---- calls ---- */

static CUresult nodes_of_graph(const struct CUgraph_st *graph, const CUgraphNode *nodes, size_t nr)
{
    if (nr && !nodes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < nr; i++) {
        if (!sgp_object_is(nodes[i], SGP_NODE) || nodes[i]->graph != graph) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult begin(struct CUstream_st *stream, struct CUgraph_st *graph, const CUgraphNode *dependencies, size_t nr,
                      CUstreamCaptureMode mode)
{
    struct sgp_capture *capture = calloc(1, sizeof(*capture));
    struct sgp_nodes nodes = {0};

    if (!capture) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct sgp_capture){
        .nr_references = 1,
        .next = sgp_driver.captures,
        .graph = graph ? graph : sgp_graph_new(),
        .origin = stream,
        .context = stream->object.context,
        .id = sgp_new_id(),
        .mode = mode,
        .thread = own_thread(),
        .is_into_graph = graph != NULL,
    };
    if (!capture->graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < nr; i++) {
        sgp_nodes_add(&nodes, dependencies[i]);
    }
    sgp_object_hold(capture->context);
    sgp_driver.captures = capture;
    stream_join(stream, capture);
    replace(&stream->captured, &stream->nr_captured, &nodes);
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                                const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                CUstreamCaptureMode mode)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &context, &stream);

    if (result) {
        return result;
    }
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || !sgp_object_is(hGraph, SGP_GRAPH)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (stream == context->legacy) {
        return sgp_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (stream->capture) {
        return sgp_leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    if (!sgp_edges_are_plain(dependencyData, numDependencies)) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    result = nodes_of_graph(hGraph, dependencies, numDependencies);
    return sgp_leave(result ? result : begin(stream, hGraph, dependencies, numDependencies, mode));
}

SGP_EXPORT CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &context, &stream);

    if (result) {
        return result;
    }
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (stream == context->legacy) {
        return sgp_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return sgp_leave(stream->capture ? CUDA_ERROR_ILLEGAL_STATE : begin(stream, NULL, NULL, 0, mode));
}

SGP_EXPORT CUresult cuStreamBeginCapture(CUstream hStream)
{
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Marks everything that the node waits for, itself included. */
static void mark_ancestors(struct CUgraphNode_st *node)
{
    if (node->mark) {
        return;
    }
    node->mark = 1;
    for (uint32_t i = 0; i < node->nr_dependencies; i++) {
        mark_ancestors(node->dependencies[i]);
    }
}

/* Whether everything that other streams captured comes before what the first stream did last. */
static bool is_joined(const struct sgp_capture *capture)
{
    for (struct CUgraphNode_st *node = capture->graph->first; node; node = node->next) {
        node->mark = 0;
    }
    for (uint32_t i = 0; i < capture->origin->nr_captured; i++) {
        mark_ancestors(capture->origin->captured[i]);
    }
    for (const struct CUstream_st *stream = capture->context->streams; stream; stream = stream->next) {
        for (uint32_t i = 0; stream->capture == capture && i < stream->nr_captured; i++) {
            if (!stream->captured[i]->mark) {
                return false;
            }
        }
    }
    return true;
}

SGP_EXPORT CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct sgp_capture *capture;
    struct CUgraph_st *graph;
    bool is_gone;
    CUresult result = sgp_enter_stream(hStream, &context, &stream);

    if (result) {
        return result;
    }
    capture = stream->capture;
    if (phGraph) {
        *phGraph = NULL;
    }
    if (!capture || !phGraph) {
        return sgp_leave(capture ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE);
    }
    if (capture->origin != stream) {
        return sgp_leave(invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != own_thread()) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; /* which ends it all the same */
    } else if (capture->is_invalidated) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(capture)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    graph = capture->graph;
    is_gone = result && !capture->is_into_graph;
    capture_end(capture, !result);
    if (!result) {
        *phGraph = graph;
    }
    sgp_unlock();
    if (is_gone) {
        fgv_user_objects_drop((uintptr_t)graph);
    }
    return result;
}

SGP_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                              cuuint64_t *id_out, CUgraph *graph_out,
                                              const CUgraphNode **dependencies_out,
                                              const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct sgp_capture *capture;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &context, &stream), captureStatus_out);

    if (result) {
        return result;
    }
    if (stream == context->legacy && blocking_capture(context)) {
        return sgp_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    capture = stream->capture;
    *captureStatus_out = !capture                  ? CU_STREAM_CAPTURE_STATUS_NONE
                         : capture->is_invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return sgp_leave(CUDA_SUCCESS);
    }
    if (id_out) {
        *id_out = capture->id;
    }
    if (graph_out) {
        *graph_out = capture->graph;
    }
    if (dependencies_out) {
        *dependencies_out = stream->captured;
    }
    if (edgeData_out) {
        *edgeData_out = NULL; /* none of them says anything */
    }
    if (numDependencies_out) {
        *numDependencies_out = stream->nr_captured;
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                              cuuint64_t *id_out, CUgraph *graph_out,
                                              const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                     numDependencies_out);
}

SGP_EXPORT CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                           cuuint64_t *id_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

SGP_EXPORT CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

SGP_EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                                         const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                         unsigned int flags)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct sgp_nodes nodes = {0};
    CUresult result = sgp_enter_stream(hStream, &context, &stream);

    if (result) {
        return result;
    }
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!stream->capture) {
        return sgp_leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    if (stream->capture->is_invalidated) {
        return sgp_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if (!sgp_edges_are_plain(dependencyData, numDependencies)) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    result = nodes_of_graph(stream->capture->graph, dependencies, numDependencies);
    if (result) {
        return sgp_leave(result);
    }
    for (uint32_t i = 0; flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && i < stream->nr_captured; i++) {
        sgp_nodes_add(&nodes, stream->captured[i]);
    }
    for (size_t i = 0; i < numDependencies; i++) {
        sgp_nodes_add(&nodes, dependencies[i]);
    }
    replace(&stream->captured, &stream->nr_captured, &nodes);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                                      size_t numDependencies, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
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
