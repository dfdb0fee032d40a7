/*
 * Calls about nodes of one kind, made of the calls that know all kinds. Both of our libcuda.so.1 libraries have these.
 */
#include <string.h>

#include "cuda_api/prototypes.h"
#include "ops.h"

#define ADD(...)                                                                                                       \
    cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, &(CUgraphNodeParams){__VA_ARGS__})
#define SET(...)      cuGraphNodeSetParams(hNode, &(CUgraphNodeParams){__VA_ARGS__})
#define SET_EXEC(...) cuGraphExecNodeSetParams(hGraphExec, hNode, &(CUgraphNodeParams){__VA_ARGS__})

/* The first version's parameters, as the second's. */
static CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1 *first)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    memcpy(&params.kernel, first, sizeof(*first));
    return params;
}

static CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS *first, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

    memcpy(&params.memset, first, sizeof(*first));
    params.memset.ctx = context;
    return params;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return nodeParams ? ADD(.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params = kernel_params(nodeParams);
    return cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    CUgraphNodeParams params = {0};
    CUresult result = nodeParams ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &params)
                                 : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *nodeParams = params.kernel;
    }
    return result;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUresult result = nodeParams ? cuGraphKernelNodeGetParams_v2(hNode, &params) : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        memcpy(nodeParams, &params, sizeof(*nodeParams));
        nodeParams->func = params.func ? params.func : (CUfunction)params.kern; /* launches take either */
    }
    return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return nodeParams ? SET(.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params = kernel_params(nodeParams);
    return cuGraphNodeSetParams(hNode, &params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return nodeParams ? SET_EXEC(.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params = kernel_params(nodeParams);
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (!copyParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return ADD(.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = ctx, .copyParams = *copyParams});
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    CUgraphNodeParams params = {0};
    CUresult result = nodeParams ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &params)
                                 : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *nodeParams = params.memcpy.copyParams;
    }
    return result;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    return nodeParams ? SET(.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyParams = *nodeParams})
                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                        CUcontext ctx)
{
    if (!copyParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return SET_EXEC(.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = ctx, .copyParams = *copyParams});
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    CUgraphNodeParams params;

    if (!memsetParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params = memset_params(memsetParams, ctx);
    return cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    CUgraphNodeParams params = {0};
    CUresult result = nodeParams ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &params)
                                 : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        memcpy(nodeParams, &params.memset, sizeof(*nodeParams));
    }
    return result;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params = memset_params(nodeParams, NULL);
    return cuGraphNodeSetParams(hNode, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    CUgraphNodeParams params;

    if (!memsetParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params = memset_params(memsetParams, ctx);
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    return nodeParams ? ADD(.type = CU_GRAPH_NODE_TYPE_HOST, .host = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUgraphNodeParams params = {0};
    CUresult result =
        nodeParams ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_HOST, &params) : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *nodeParams = params.host;
    }
    return result;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    return nodeParams ? SET(.type = CU_GRAPH_NODE_TYPE_HOST, .host = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    return nodeParams ? SET_EXEC(.type = CU_GRAPH_NODE_TYPE_HOST, .host = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph)
{
    return ADD(.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph});
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    CUgraphNodeParams params = {0};
    CUresult result =
        phGraph ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_GRAPH, &params) : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *phGraph = params.graph.graph;
    }
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
    return SET_EXEC(.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph});
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies)
{
    return ADD(.type = CU_GRAPH_NODE_TYPE_EMPTY);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, CUevent event)
{
    return ADD(.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event});
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, CUevent event)
{
    return ADD(.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event});
}

static CUresult event_get(CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
    CUgraphNodeParams params = {0};
    CUresult result = event ? fgv_graph_ops_get()->node_get(node, type, &params) : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *event = params.eventWait.event;
    }
    return result;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return event_get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return event_get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    return SET(.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event});
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    return SET(.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event});
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return SET_EXEC(.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event});
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    return SET_EXEC(.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event});
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult result;

    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params.alloc = *nodeParams;
    result = cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
    if (!result) {
        nodeParams->dptr = params.alloc.dptr;
    }
    return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    CUgraphNodeParams params = {0};
    CUresult result = params_out ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &params)
                                 : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *params_out = params.alloc;
    }
    return result;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr)
{
    return ADD(.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = dptr});
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    CUgraphNodeParams params = {0};
    CUresult result = dptr_out ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, &params)
                               : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *dptr_out = params.free.dptr;
    }
    return result;
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    return nodeParams ? ADD(.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
    CUgraphNodeParams params = {0};
    CUresult result = nodeParams_out ? fgv_graph_ops_get()->node_get(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &params)
                                     : CUDA_ERROR_INVALID_VALUE;

    if (!result) {
        *nodeParams_out = params.memOp;
    }
    return result;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    return nodeParams ? SET(.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    return nodeParams ? SET_EXEC(.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = *nodeParams)
                      : CUDA_ERROR_INVALID_VALUE;
}
