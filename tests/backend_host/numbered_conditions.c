/*
 * A device library that numbers the conditional handles of each graph anew, as NVIDIA's does, and passes every call on
 * to the one it is linked against. Built by between.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "cuda_api/types.h"

#define NR_GRAPHS 8

static struct {
    CUgraph graph;
    CUgraphConditionalHandle first;
} known[NR_GRAPHS];

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags)
{
    __typeof__(cuGraphConditionalHandleCreate) *next = dlsym(RTLD_NEXT, "cuGraphConditionalHandleCreate");
    CUresult result = next(pHandle_out, hGraph, ctx, defaultLaunchValue, flags);
    for (int i = 0; i < NR_GRAPHS && result == CUDA_SUCCESS; i++) {
        if (!known[i].graph) {
            known[i].graph = hGraph;
            known[i].first = *pHandle_out;
            *pHandle_out = 1;
            break;
        }
    }
    return result;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    __typeof__(cuGraphAddNode_v2) *next = dlsym(RTLD_NEXT, "cuGraphAddNode_v2");
    for (int i = 0; i < NR_GRAPHS && nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL; i++) {
        if (known[i].graph == hGraph && nodeParams->conditional.handle == 1) {
            nodeParams->conditional.handle = known[i].first;
            break;
        }
    }
    return next(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}
