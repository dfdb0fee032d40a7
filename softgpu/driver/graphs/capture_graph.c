/* Captures as graphs: the sink that makes nodes of the work of a captured stream, and the calls. */
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph.h"
#include "stream/stream.h"

CUresult sgp_capture_work(struct CUstream_st *stream, struct sgp_work *work)
{
    struct sgp_nodes behind = {0};
    struct CUgraphNode_st *node;
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    if (!stream->capture->is_invalidated) {
        result = sgp_node_add(stream->capture->graph, stream->captured.items, stream->captured.nr, work, &node);
        if (!result && !sgp_nodes_add(&behind, node)) {
            return sgp_capture_invalidate(stream->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    if (result) {
        sgp_work_drop(work);
        return result;
    }
    sgp_nodes_replace(&stream->captured, &behind);
    return CUDA_SUCCESS;
}

static CUresult capture_launch(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_launch *launch,
                               void **parameters, void **extra)
{
    struct sgp_work work;
    CUresult result = sgp_work_kernel(&work, context, launch, parameters, extra);

    return result ? result : sgp_capture_work(stream, &work);
}

static CUresult capture_copy(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_box *box)
{
    struct sgp_work work = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .context = context, .box = *box};

    sgp_object_keep(context);
    return sgp_capture_work(stream, &work);
}

static CUresult capture_set(struct CUctx_st *context, struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set)
{
    struct sgp_work work = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .context = context, .set = *set};

    sgp_object_keep(context);
    return sgp_capture_work(stream, &work);
}

static CUresult capture_host(struct CUstream_st *stream, CUhostFn function, void *data)
{
    struct sgp_work work = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {.fn = function, .userData = data}};

    return sgp_capture_work(stream, &work);
}

static CUresult capture_event(struct CUstream_st *stream, struct CUevent_st *event, CUgraphNodeType type)
{
    struct sgp_work work = {.type = type, .event = event};

    sgp_object_keep(event);
    return sgp_capture_work(stream, &work);
}

static CUresult capture_values(struct CUstream_st *stream, struct sgp_values *values)
{
    struct sgp_work work = {
        .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .context = stream->object.context, .values = values};

    sgp_object_keep(work.context);
    return sgp_capture_work(stream, &work);
}

static CUresult capture_memory(struct CUstream_st *stream, CUgraphNodeParams *params)
{
    struct sgp_work work;
    CUresult result = sgp_work_of_memory(&work, stream->object.context, stream->capture->graph, params);

    return result ? result : sgp_capture_work(stream, &work);
}

/* Memory that is none of a pool's. */
static CUresult capture_allocate(struct CUstream_st *stream, uint64_t bytes, CUdeviceptr *address)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = stream->object.context->device->ordinal};
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location}, .bytesize = bytes}};
    CUresult result = capture_memory(stream, &params);

    if (!result) {
        *address = params.alloc.dptr;
    }
    return result;
}

static CUresult capture_free(struct CUstream_st *stream, CUdeviceptr address)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = address}};

    return capture_memory(stream, &params);
}

static const struct sgp_sink sink = {
    .launch = capture_launch,
    .copy = capture_copy,
    .set = capture_set,
    .host = capture_host,
    .event = capture_event,
    .values = capture_values,
    .allocate = capture_allocate,
    .free = capture_free,
    .drop = sgp_graph_delete,
};

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

static CUresult begin(struct CUstream_st *stream, struct CUgraph_st *into, const CUgraphNode *dependencies, size_t nr,
                      CUstreamCaptureMode mode)
{
    struct CUgraph_st *graph = into ? into : sgp_graph_new();
    struct sgp_nodes nodes = {0};
    CUresult result = graph ? sgp_capture_begin(stream, &sink, graph, into != NULL, mode) : CUDA_ERROR_OUT_OF_MEMORY;

    if (result) {
        if (graph && !into) {
            sgp_graph_delete(graph);
        }
        return result;
    }
    for (size_t i = 0; i < nr; i++) {
        sgp_nodes_add(&nodes, dependencies[i]);
    }
    sgp_nodes_replace(&stream->captured, &nodes);
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                                const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || !sgp_object_is(hGraph, SGP_GRAPH)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (stream == stream->object.context->legacy) {
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
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (stream == stream->object.context->legacy) {
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
    for (uint32_t i = 0; i < capture->origin->captured.nr; i++) {
        mark_ancestors(capture->origin->captured.items[i]);
    }
    for (const struct CUstream_st *stream = capture->context->streams; stream; stream = stream->next) {
        for (uint32_t i = 0; stream->capture == capture && i < stream->captured.nr; i++) {
            if (!stream->captured.items[i]->mark) {
                return false;
            }
        }
    }
    return true;
}

SGP_EXPORT CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct CUstream_st *stream;
    struct sgp_capture *capture;
    struct CUgraph_st *graph;
    bool is_gone;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    capture = stream->capture;
    if (phGraph) {
        *phGraph = NULL;
    }
    if (!capture) {
        return sgp_leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    if (capture->origin != stream) {
        return sgp_leave(sgp_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !sgp_capture_is_own(capture)) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; /* which ends it all the same */
    } else if (capture->is_invalidated) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(capture)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    graph = capture->graph;
    is_gone = (result || !phGraph) && !capture->is_into_graph; /* nobody has it */
    sgp_capture_end(capture, !is_gone);
    if (!result && phGraph) {
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
    struct CUstream_st *stream;
    struct sgp_capture *capture;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), captureStatus_out);

    if (result) {
        return result;
    }
    if (stream == stream->object.context->legacy && sgp_capture_blocking(stream->object.context)) {
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
        *dependencies_out = stream->captured.items;
    }
    if (edgeData_out) {
        *edgeData_out = NULL; /* none of them says anything */
    }
    if (numDependencies_out) {
        *numDependencies_out = stream->captured.nr;
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
    struct CUstream_st *stream;
    struct sgp_nodes nodes = {0};
    CUresult result = sgp_enter_stream(hStream, &stream);

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
    for (uint32_t i = 0; flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && i < stream->captured.nr; i++) {
        sgp_nodes_add(&nodes, stream->captured.items[i]);
    }
    for (size_t i = 0; i < numDependencies; i++) {
        sgp_nodes_add(&nodes, dependencies[i]);
    }
    sgp_nodes_replace(&stream->captured, &nodes);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                                      size_t numDependencies, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}
