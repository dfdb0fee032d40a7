/*
 * Of the stand-in: work and whether it has ended, captures, graphs.
 */
#include "by_hand.h"

#define MAX_GRAPH_NODES 64u

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

static struct stand_object *node_below(struct stand_object *graph, uint64_t type)
{
    struct stand_object *node = stand_make(FGV_HANDLE_GRAPH_NODE, graph);
    node->value = type;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        stand_make(FGV_HANDLE_GRAPH, node);
    }
    return node;
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
    node_below(graph, CU_GRAPH_NODE_TYPE_EMPTY);
    return CUDA_SUCCESS;
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
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
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

/* ---- graphs ---- */

STAND_IN(cuGraphAddNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *behind, const CUgraphEdgeData *edges,
         size_t nr, CUgraphNodeParams *params)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    for (size_t i = 0; i < nr; i++) {
        stand_need(FGV_HANDLE_GRAPH_NODE, behind[i]);
    }
    stand_read(edges, edges ? nr * sizeof(*edges) : 0);
    BEGIN(cuGraphAddNode_v2);
    *node = (CUgraphNode)node_below((struct stand_object *)graph, (uint64_t)params->type);
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphClone, CUgraph *made, CUgraph graph)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    BEGIN(cuGraphClone);
    struct stand_object *clone = stand_make(FGV_HANDLE_GRAPH, NULL);
    for (struct stand_object *node = ((struct stand_object *)graph)->first; node; node = node->next) {
        node_below(clone, node->value);
    }
    *made = (CUgraph)clone;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphNodeGetType, CUgraphNode node, CUgraphNodeType *type)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphNodeGetType);
    *type = (CUgraphNodeType)((struct stand_object *)node)->value;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphChildGraphNodeGetGraph, CUgraphNode node, CUgraph *graph)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphChildGraphNodeGetGraph);
    *graph = (CUgraph)((struct stand_object *)node)->first;
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

STAND_IN(cuGraphNodeFindInClone, CUgraphNode *found, CUgraphNode original, CUgraph clone)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, original);
    stand_need(FGV_HANDLE_GRAPH, clone);
    BEGIN(cuGraphNodeFindInClone);
    *found = (CUgraphNode)((struct stand_object *)clone)->first;
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Nodes, or edges of them in a row. */
static CUresult list(struct stand_object *graph, CUgraphNode *nodes, CUgraphNode *ends, CUgraphEdgeData *edges,
                     size_t *nr)
{
    size_t nr_nodes = 0;
    for (struct stand_object *node = graph->first; node && nr_nodes < MAX_GRAPH_NODES; node = node->next) {
        if (nodes && nr_nodes < *nr) {
            nodes[nr_nodes] = (CUgraphNode)node;
            if (ends) {
                ends[nr_nodes] = (CUgraphNode)node;
            }
            if (edges) {
                edges[nr_nodes] = (CUgraphEdgeData){0};
            }
        }
        nr_nodes++;
    }
    *nr = nr_nodes;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphGetNodes, CUgraph graph, CUgraphNode *nodes, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    BEGIN(cuGraphGetNodes);
    return list((struct stand_object *)graph, nodes, NULL, NULL, nr);
}

STAND_IN(cuGraphGetRootNodes, CUgraph graph, CUgraphNode *nodes, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    BEGIN(cuGraphGetRootNodes);
    return list((struct stand_object *)graph, nodes, NULL, NULL, nr);
}

STAND_IN(cuGraphGetEdges_v2, CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    BEGIN(cuGraphGetEdges_v2);
    return list((struct stand_object *)graph, from, to, edges, nr);
}

STAND_IN(cuGraphNodeGetDependencies_v2, CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphNodeGetDependencies_v2);
    return list(((struct stand_object *)node)->parent, nodes, NULL, edges, nr);
}

STAND_IN(cuGraphNodeGetDependentNodes_v2, CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphNodeGetDependentNodes_v2);
    return list(((struct stand_object *)node)->parent, nodes, NULL, edges, nr);
}
