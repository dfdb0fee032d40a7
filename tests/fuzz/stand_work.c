/*
 * Of the stand-in: work and whether it has ended, functions of the host, captures.
 */
#include <stdlib.h>

#include "by_hand.h"

/* ---- work, and whether it has ended ---- */

STAND_IN(cuEventQuery, CUevent event)
{
    stand_need(FGV_HANDLE_EVENT, event);
    BEGIN(cuEventQuery);
    return stand_is_busy() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

STAND_IN(cuStreamQuery, CUstream stream)
{
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuStreamQuery);
    return stand_is_busy() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static struct stand_object *captured_by(CUstream stream)
{
    return (uintptr_t)stream > 2 ? ((struct stand_object *)stream)->captured : NULL;
}

STAND_IN(cuEventRecord, CUevent event, CUstream stream)
{
    stand_need(FGV_HANDLE_EVENT, event);
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuEventRecord);
    if (captured_by(stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuStreamBeginCapture_v2);
    if (captured_by(stream)) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    struct stand_object *graph = stand_make(FGV_HANDLE_GRAPH, stand_current);
    ((struct stand_object *)stream)->captured = graph;
    graph->captured = (struct stand_object *)stream;
    stand_node(graph, &(CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY});
    return CUDA_SUCCESS;
}

/* Wrong when: what is captured has to show up in the graph, which was there before and stays. */
STAND_IN(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode *behind,
         const CUgraphEdgeData *edges, size_t nr, CUstreamCaptureMode mode)
{
    (void)mode;
    stand_need(FGV_HANDLE_STREAM, stream);
    stand_need(FGV_HANDLE_GRAPH, graph);
    for (size_t i = 0; i < nr; i++) {
        stand_need(FGV_HANDLE_GRAPH_NODE, behind[i]);
    }
    stand_read(edges, edges ? nr * sizeof(*edges) : 0);
    BEGIN(cuStreamBeginCaptureToGraph);
    return captured_by(stream) || ((struct stand_object *)graph)->captured ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

STAND_IN(cuStreamIsCapturing, CUstream stream, CUstreamCaptureStatus *status)
{
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuStreamIsCapturing);
    *status = captured_by(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

STAND_IN(cuStreamEndCapture, CUstream stream, CUgraph *graph)
{
    stand_need(FGV_HANDLE_STREAM, stream);
    struct stand_object *made = captured_by(stream);
    const CUresult result = stand_call(STAND_cuStreamEndCapture, "cuStreamEndCapture");
    *graph = NULL;
    if (!made) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    ((struct stand_object *)stream)->captured = made->captured = NULL;
    if (result != CUDA_SUCCESS) {
        stand_end(made);
        return result;
    }
    *graph = (CUgraph)made;
    return CUDA_SUCCESS;
}

STAND_IN(cuStreamGetCaptureInfo_v3, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
         const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *nr_nodes)
{
    static const CUgraphNode *last;
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuStreamGetCaptureInfo_v3);
    struct stand_object *made = captured_by(stream);
    static CUgraphNode node;
    node = made ? (CUgraphNode)made->first : NULL;
    last = &node;
    *status = made ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (made) {
        *id = 1;
        *graph = (CUgraph)made;
        *nodes = last;
        *edges = NULL;
        *nr_nodes = made->first ? 1 : 0;
    }
    return CUDA_SUCCESS;
}

/* ---- functions of the host ---- */

struct host_function {
    CUhostFn function;
    CUstreamCallback callback; /* one of the two */
    CUstream stream;
    void *data;
};

static CUresult queue(const struct host_function *host)
{
    struct stand_object *object = stand_new(STAND_HOST, stand_current);
    object->data = malloc(sizeof(*host));
    memcpy(object->data, host, sizeof(*host));
    return CUDA_SUCCESS;
}

STAND_IN(cuLaunchHostFunc, CUstream stream, CUhostFn function, void *data)
{
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuLaunchHostFunc);
    const CUDA_HOST_NODE_PARAMS host = {.fn = function, .userData = data};
    if (captured_by(stream)) {
        stand_node(captured_by(stream), &(CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST, .host = host});
        return CUDA_SUCCESS;
    }
    return queue(&(struct host_function){.function = function, .stream = stream, .data = data});
}

STAND_IN(cuStreamAddCallback, CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    (void)flags;
    stand_need(FGV_HANDLE_STREAM, stream);
    BEGIN(cuStreamAddCallback);
    return queue(&(struct host_function){.callback = callback, .stream = stream, .data = data});
}

static struct stand_object *oldest_host(struct stand_object *parent)
{
    struct stand_object *oldest = NULL;
    for (struct stand_object *object = parent->first; object; object = object->next) {
        struct stand_object *below = object->kind == STAND_HOST ? object : oldest_host(object);
        oldest = below ? below : oldest;
    }
    return oldest;
}

bool stand_run_host(void)
{
    struct stand_object *object = oldest_host(&stand_root);
    if (!object) {
        return false;
    }
    const struct host_function host = *(struct host_function *)object->data;
    stand_end(object);
    if (host.callback) {
        host.callback(host.stream, CUDA_SUCCESS, host.data);
    } else {
        host.function(host.data);
    }
    return true;
}
