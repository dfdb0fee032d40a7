/* Changes to what was instantiated of a graph: of one node, and of all by another graph of the same shape. */
#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph_exec.h"
#include "graphs/graph_memory.h"

static struct sgp_exec_node *node_find(struct CUgraphExec_st *exec, const struct CUgraphNode_st *node)
{
    struct sgp_exec_node *found = NULL;

    for (uint32_t i = 0; i < exec->nr_nodes && !found; i++) {
        found = exec->nodes[i].id == node->id ? &exec->nodes[i] : NULL;
        if (!found && exec->nodes[i].child) {
            found = node_find(exec->nodes[i].child, node);
        }
        for (unsigned int k = 0; !found && exec->nodes[i].decision && k < exec->nodes[i].decision->nr_bodies; k++) {
            found = node_find(exec->nodes[i].decision->bodies[k], node);
        }
    }
    return found;
}

static CUresult enter_exec_node(CUgraphExec exec, CUgraphNode node, struct sgp_exec_node **found)
{
    CUresult result = sgp_enter_exec(exec);

    if (result) {
        return result;
    }
    *found = sgp_object_is(node, SGP_NODE) ? node_find(exec, node) : NULL;
    return *found ? CUDA_SUCCESS : sgp_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool has_same_shape(const struct CUgraphExec_st *exec, struct CUgraph_st *graph);

/* Takes over what the nodes of a graph of the same shape do; ids stay those of the graph that was instantiated. */
static CUresult exec_take(struct CUgraphExec_st *exec, struct CUgraph_st *graph)
{
    struct CUgraphExec_st *fresh;
    CUresult result = sgp_exec_make(graph, &fresh);

    if (result) {
        return result;
    }
    for (uint32_t i = 0; i < exec->nr_nodes; i++) {
        struct sgp_exec_node swapped = exec->nodes[i];

        exec->nodes[i].work = fresh->nodes[i].work;
        fresh->nodes[i].work = swapped.work;
        exec->nodes[i].decision = fresh->nodes[i].decision;
        fresh->nodes[i].decision = swapped.decision;
        if (exec->nodes[i].child) {
            result = exec_take(exec->nodes[i].child, exec->nodes[i].work.child);
        }
    }
    sgp_exec_delete(fresh);
    return result;
}

static bool is_of_array(const struct sgp_work *work)
{
    return work->type == CU_GRAPH_NODE_TYPE_MEMCPY && (work->box.source_array || work->box.destination_array);
}

SGP_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    struct CUctx_st *context;
    struct sgp_exec_node *node;
    struct sgp_work work;
    CUresult result;

    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = enter_exec_node(hGraphExec, hNode, &node);
    if (result) {
        return result;
    }
    context = sgp_context_current();
    if (!context) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (node->work.type != nodeParams->type) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (node->child) {
        if (!sgp_object_is(nodeParams->graph.graph, SGP_GRAPH)) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
        if (!has_same_shape(node->child, nodeParams->graph.graph)) {
            return sgp_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        return sgp_leave(exec_take(node->child, nodeParams->graph.graph));
    }
    result = sgp_work_of_params(&work, context, nodeParams);
    if (!result && (is_of_array(&node->work) || is_of_array(&work))) {
        sgp_work_drop(&work);
        result = CUDA_ERROR_INVALID_VALUE; /* as NVIDIA's driver: it can only be changed in the graph */
    }
    if (result) {
        return sgp_leave(result);
    }
    sgp_work_drop(&node->work);
    node->work = work;
    return sgp_leave(CUDA_SUCCESS);
}

static bool may_be_disabled(const struct sgp_exec_node *node)
{
    return node->work.type == CU_GRAPH_NODE_TYPE_KERNEL || node->work.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node->work.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

SGP_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    struct sgp_exec_node *node;
    CUresult result = enter_exec_node(hGraphExec, hNode, &node);

    if (result) {
        return result;
    }
    if (!may_be_disabled(node)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    node->is_enabled = isEnabled != 0;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    struct sgp_exec_node *node;
    CUresult result = enter_exec_node(hGraphExec, hNode, &node);

    if (result) {
        return result;
    }
    if (!isEnabled || !may_be_disabled(node)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *isEnabled = node->is_enabled;
    return sgp_leave(CUDA_SUCCESS);
}

/* ---- updates ---- */

static bool has_same_bodies(const struct sgp_decision *was, const struct sgp_conditional *is)
{
    bool is_same = was->type == is->type && was->nr_bodies == is->nr_bodies;

    for (unsigned int i = 0; i < is->nr_bodies && is_same; i++) {
        is_same = has_same_shape(was->bodies[i], is->bodies[i]);
    }
    return is_same;
}

/* The first place at which the graph differs from what was instantiated; nr_nodes: nowhere. The marks are places + 1.
 */
static uint32_t first_difference(const struct CUgraphExec_st *exec, const struct CUgraph_st *graph,
                                 struct CUgraphNode_st **order, CUgraphExecUpdateResult *why)
{
    *why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (graph->nr_nodes != exec->nr_nodes) {
        return 0;
    }
    for (uint32_t i = 0; i < exec->nr_nodes; i++) {
        const struct sgp_exec_node *was = &exec->nodes[i];
        const struct CUgraphNode_st *is = order[i];

        if (is->nr_dependencies != was->nr_dependencies) {
            return i;
        }
        for (uint32_t k = 0; k < is->nr_dependencies; k++) {
            if (is->dependencies[k]->mark - 1 != was->dependencies[k]) {
                return i;
            }
        }
        if (sgp_is_of_memory(is->work.type)) {
            *why = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
            return i;
        }
        if (is->work.type != was->work.type) {
            *why = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
            return i;
        }
        if (was->child && !has_same_shape(was->child, is->work.child)) {
            return i;
        }
        if (was->decision && !has_same_bodies(was->decision, is->work.conditional)) {
            return i;
        }
    }
    *why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return exec->nr_nodes;
}

static bool has_same_shape(const struct CUgraphExec_st *exec, struct CUgraph_st *graph)
{
    CUgraphExecUpdateResult why = CU_GRAPH_EXEC_UPDATE_ERROR;
    struct CUgraphNode_st **order;

    if (!sgp_graph_order(graph, &order)) {
        first_difference(exec, graph, order, &why);
        free(order);
    }
    return why == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

SGP_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                         CUgraphExecUpdateResultInfo *resultInfo)
{
    struct CUgraphNode_st **order;
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    uint32_t place;
    CUresult result = sgp_enter_exec(hGraphExec);

    if (result) {
        return result;
    }
    if (!resultInfo || !sgp_object_is(hGraph, SGP_GRAPH)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_graph_order(hGraph, &order);
    if (!result) {
        place = first_difference(hGraphExec, hGraph, order, &info.result);
        if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
            info.errorNode = hGraph->nr_nodes == hGraphExec->nr_nodes ? order[place] : NULL;
            result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        free(order);
    }
    *resultInfo = info;
    if (!result) {
        result = exec_take(hGraphExec, hGraph);
    }
    if (!result) {
        fgv_user_objects_copy((uintptr_t)hGraph, (uintptr_t)hGraphExec);
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                      CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {0};
    CUresult result;

    if (!hErrorNode_out || !updateResult_out) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    *hErrorNode_out = info.errorNode;
    *updateResult_out = info.result;
    return result;
}
