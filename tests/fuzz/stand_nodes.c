/*
 * Of the stand-in: graphs, and nodes, which know what they were made with.
 */
#include <stdlib.h>

#include "by_hand.h"

#define MAX_GRAPH_NODES 64u
#define MAX_BODIES      32u
#define MAX_PARAMETERS  8u
#define FIRST_CONDITION 1000u

static const CUgraphNodeParams *params_of(CUgraphNode node)
{
    return ((struct stand_object *)node)->data;
}

struct stand_object *stand_node(struct stand_object *graph, const CUgraphNodeParams *params)
{
    struct stand_object *node = stand_make(FGV_HANDLE_GRAPH_NODE, graph);
    node->value = (uint64_t)params->type;
    node->data = malloc(sizeof(*params));
    memcpy(node->data, params, sizeof(*params));
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        stand_make(FGV_HANDLE_GRAPH, node);
    }
    return node;
}

STAND_IN(cuGraphAddNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *behind, const CUgraphEdgeData *edges,
         size_t nr, CUgraphNodeParams *params)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    for (size_t i = 0; i < nr; i++) {
        stand_need(FGV_HANDLE_GRAPH_NODE, behind[i]);
    }
    stand_read(edges, edges ? nr * sizeof(*edges) : 0);
    BEGIN(cuGraphAddNode_v2);
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        params->alloc.dptr = stand_last_address;
    }
    struct stand_object *made = stand_node((struct stand_object *)graph, params);
    if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        static CUgraph bodies[MAX_BODIES];
        for (unsigned int i = 0; i < params->conditional.size; i++) {
            bodies[i] = (CUgraph)stand_make(FGV_HANDLE_GRAPH, made);
        }
        params->conditional.phGraph_out = bodies;
    }
    *node = (CUgraphNode)made;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphClone, CUgraph *made, CUgraph graph)
{
    stand_need(FGV_HANDLE_GRAPH, graph);
    BEGIN(cuGraphClone);
    struct stand_object *clone = stand_make(FGV_HANDLE_GRAPH, NULL);
    for (struct stand_object *node = ((struct stand_object *)graph)->first; node; node = node->next) {
        stand_node(clone, node->data);
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

/* A graph's nodes are a chain, in the order in which they were made; the list begins with the last. */
static CUresult chain(struct stand_object *neighbour, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *nr)
{
    if (neighbour && nodes && *nr != 0) {
        nodes[0] = (CUgraphNode)neighbour;
        if (edges) {
            edges[0] = (CUgraphEdgeData){0};
        }
    }
    *nr = neighbour ? 1 : 0;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphNodeGetDependencies_v2, CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphNodeGetDependencies_v2);
    return chain(((struct stand_object *)node)->next, nodes, edges, nr);
}

STAND_IN(cuGraphNodeGetDependentNodes_v2, CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *nr)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphNodeGetDependentNodes_v2);
    struct stand_object *behind = ((struct stand_object *)node)->parent->first;
    while (behind && behind->next != (struct stand_object *)node) {
        behind = behind->next;
    }
    return chain(behind, nodes, edges, nr);
}

STAND_IN(cuGraphConditionalHandleCreate, CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
         unsigned int value, unsigned int flags)
{
    (void)value;
    (void)flags;
    stand_need(FGV_HANDLE_GRAPH, graph);
    stand_need(FGV_HANDLE_CONTEXT, context);
    BEGIN(cuGraphConditionalHandleCreate);
    *handle = FIRST_CONDITION;
    return CUDA_SUCCESS;
}

/* ---- what nodes were made with ---- */

static CUresult set(CUgraphNode node, const CUgraphNodeParams *params)
{
    struct stand_object *object = (struct stand_object *)node;
    if (object->value != (uint64_t)params->type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(object->data, params, sizeof(*params));
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphNodeSetParams, CUgraphNode node, CUgraphNodeParams *params)
{
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphNodeSetParams);
    return set(node, params);
}

STAND_IN(cuGraphExecNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    stand_need(FGV_HANDLE_GRAPH_EXEC, exec);
    stand_need(FGV_HANDLE_GRAPH_NODE, node);
    BEGIN(cuGraphExecNodeSetParams);
    return params->type == params_of(node)->type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A node of another type has none. */
#define TOLD(name, node, of_type)                                                                                      \
    stand_need(FGV_HANDLE_GRAPH_NODE, node);                                                                           \
    BEGIN(name);                                                                                                       \
    if (params_of(node)->type != (of_type)) {                                                                          \
        return CUDA_ERROR_INVALID_VALUE;                                                                               \
    }

/* As single values, or as the one buffer that it was told them in. */
STAND_IN(cuGraphKernelNodeGetParams_v2, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    static uint64_t values[MAX_PARAMETERS];
    static void *single[MAX_PARAMETERS];
    static size_t bytes = sizeof(values);
    static void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, values, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                             CU_LAUNCH_PARAM_END};
    TOLD(cuGraphKernelNodeGetParams_v2, node, CU_GRAPH_NODE_TYPE_KERNEL);
    for (unsigned int i = 0; i < MAX_PARAMETERS; i++) {
        single[i] = &values[i];
    }
    *params = params_of(node)->kernel;
    const bool is_buffer = stand_is_busy();
    params->kernelParams = is_buffer ? NULL : single;
    params->extra = is_buffer ? buffer : NULL;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphMemcpyNodeGetParams, CUgraphNode node, CUDA_MEMCPY3D *params)
{
    TOLD(cuGraphMemcpyNodeGetParams, node, CU_GRAPH_NODE_TYPE_MEMCPY);
    *params = params_of(node)->memcpy.copyParams;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphMemsetNodeGetParams, CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    TOLD(cuGraphMemsetNodeGetParams, node, CU_GRAPH_NODE_TYPE_MEMSET);
    memcpy(params, &params_of(node)->memset, sizeof(*params));
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphHostNodeGetParams, CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    TOLD(cuGraphHostNodeGetParams, node, CU_GRAPH_NODE_TYPE_HOST);
    *params = params_of(node)->host;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphMemAllocNodeGetParams, CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    TOLD(cuGraphMemAllocNodeGetParams, node, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    *params = params_of(node)->alloc;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphMemFreeNodeGetParams, CUgraphNode node, CUdeviceptr *address)
{
    TOLD(cuGraphMemFreeNodeGetParams, node, CU_GRAPH_NODE_TYPE_MEM_FREE);
    *address = params_of(node)->free.dptr;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphEventWaitNodeGetEvent, CUgraphNode node, CUevent *event)
{
    TOLD(cuGraphEventWaitNodeGetEvent, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    *event = params_of(node)->eventWait.event;
    return CUDA_SUCCESS;
}

STAND_IN(cuGraphEventRecordNodeGetEvent, CUgraphNode node, CUevent *event)
{
    TOLD(cuGraphEventRecordNodeGetEvent, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    *event = params_of(node)->eventRecord.event;
    return CUDA_SUCCESS;
}
