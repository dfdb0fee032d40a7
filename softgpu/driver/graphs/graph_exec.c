/* What is instantiated of a graph: its work in an order in which it can run, independent of the graph from then on. */
#include "graphs/graph_exec.h"

#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph_memory.h"
#include "graphs/orders.h"
#include "stream/queue.h"
#include "stream/stream.h"

void sgp_exec_delete(struct CUgraphExec_st *exec)
{
    for (uint32_t i = 0; i < exec->nr_nodes; i++) {
        if (exec->nodes[i].work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            sgp_graph_memory_forget_exec(exec->nodes[i].work.memory);
        }
        sgp_work_drop(&exec->nodes[i].work);
        free(exec->nodes[i].dependencies);
        if (exec->nodes[i].child) {
            sgp_exec_delete(exec->nodes[i].child);
        }
        if (exec->nodes[i].decision) {
            sgp_decision_release(exec->nodes[i].decision);
        }
    }
    free(exec->nodes);
    exec->nodes = NULL;
    exec->nr_nodes = 0;
    if (exec->last) {
        sgp_object_release(exec->last);
    }
    if (exec->book) {
        sgp_order_book_release(exec->book);
    }
    sgp_object_remove(exec);
    sgp_object_release(exec);
}

static void exec_free(void *object)
{
    free(object);
}

static CUresult decision_make(const struct sgp_work *work, struct sgp_decision **made)
{
    const struct sgp_conditional *conditional = work->conditional;
    CUresult result =
        sgp_decision_new(work->context, conditional->condition, conditional->type, conditional->nr_bodies, made);

    for (unsigned int i = 0; i < conditional->nr_bodies && !result; i++) {
        result = sgp_exec_make(conditional->bodies[i], &(*made)->bodies[i]);
    }
    return result;
}

/* order gave each node its place + 1 as mark. */
static CUresult node_fill(struct sgp_exec_node *to, const struct CUgraphNode_st *node)
{
    CUresult result;

    to->id = node->id;
    to->is_enabled = true;
    to->work.type = CU_GRAPH_NODE_TYPE_EMPTY;
    to->dependencies = calloc(node->nr_dependencies + 1, sizeof(*to->dependencies));
    if (!to->dependencies) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < node->nr_dependencies; i++) {
        to->dependencies[i] = node->dependencies[i]->mark - 1;
    }
    to->nr_dependencies = node->nr_dependencies;
    if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && (result = sgp_graph_memory_instantiate(node->work.memory))) {
        return result;
    }
    if (node->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        to->work = (struct sgp_work){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
        return decision_make(&node->work, &to->decision);
    }
    result = sgp_work_copy(&to->work, &node->work);
    if (result) {
        to->work = (struct sgp_work){.type = CU_GRAPH_NODE_TYPE_EMPTY};
        return result;
    }
    return node->work.type == CU_GRAPH_NODE_TYPE_GRAPH ? sgp_exec_make(node->work.child, &to->child) : CUDA_SUCCESS;
}

CUresult sgp_exec_make(struct CUgraph_st *graph, struct CUgraphExec_st **made)
{
    struct CUgraphExec_st *exec = calloc(1, sizeof(*exec));
    struct CUgraphNode_st **order = NULL;
    CUresult result;

    if (!exec || !sgp_object_add(exec, SGP_EXEC, exec_free)) {
        free(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_graph_order(graph, &order);
    if (!result && !(exec->nodes = calloc(graph->nr_nodes + 1, sizeof(*exec->nodes)))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < graph->nr_nodes && !result; i++) {
        exec->nr_nodes++;
        result = node_fill(&exec->nodes[i], order[i]);
    }
    free(order);
    if (result) {
        sgp_exec_delete(exec);
    } else {
        *made = exec;
    }
    return result;
}

#define INSTANTIATE_FLAGS                                                                                              \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |                            \
     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
#define NO_FLAGS_TOGETHER (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)

/* A graph that kernels may launch has nothing for which the host would be needed, as for copies of arrays on NVIDIA's
 * driver. NULL, or a node that would. */
static struct CUgraphNode_st *host_needing(const struct CUgraph_st *graph)
{
    struct CUgraphNode_st *found = NULL;

    for (struct CUgraphNode_st *node = graph->first; node && !found; node = node->next) {
        switch (node->work.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_MEMSET:
        case CU_GRAPH_NODE_TYPE_EMPTY:
            break;
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            found =
                sgp_box_is_pageable(&node->work.box) || node->work.box.source_array || node->work.box.destination_array
                    ? node
                    : NULL;
            break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            found = host_needing(node->work.child);
            break;
        default:
            found = node;
        }
    }
    return found;
}

SGP_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!phGraphExec || !instantiateParams || !sgp_object_is(hGraph, SGP_GRAPH) || hGraph->owner) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (instantiateParams->flags & ~(cuuint64_t)INSTANTIATE_FLAGS ||
        (instantiateParams->flags & NO_FLAGS_TOGETHER) == NO_FLAGS_TOGETHER) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH &&
        (instantiateParams->hErrNode_out = host_needing(hGraph))) {
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_exec_make(hGraph, phGraphExec);
    if (!result) {
        (*phGraphExec)->flags = instantiateParams->flags;
        fgv_user_objects_copy((uintptr_t)hGraph, (uintptr_t)*phGraphExec);
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    } else if (result == CUDA_ERROR_INVALID_VALUE) {
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags};

    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return cuGraphInstantiateWithParams(phGraphExec, hGraph, &params);
}

SGP_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                          char *logBuffer, size_t bufferSize)
{
    if (phErrorNode) {
        *phErrorNode = NULL;
    }
    if (logBuffer && bufferSize) {
        logBuffer[0] = '\0';
    }
    return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

SGP_EXPORT CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    CUresult result = sgp_enter_exec(hGraphExec);

    if (result) {
        return result;
    }
    if (hGraphExec->last && fgv_user_objects_has((uintptr_t)hGraphExec)) {
        sgp_queue_wait(hGraphExec->last, hGraphExec->sequence);
    }
    sgp_exec_delete(hGraphExec); /* commands in queues have what they need */
    sgp_unlock();
    fgv_user_objects_drop((uintptr_t)hGraphExec);
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    CUresult result = sgp_with_argument(sgp_enter_exec(hGraphExec), flags);

    if (result) {
        return result;
    }
    *flags = hGraphExec->flags;
    return sgp_leave(CUDA_SUCCESS);
}
