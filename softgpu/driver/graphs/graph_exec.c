/*
 * What is instantiated of a graph: its work in an order in which it can run, independent of the graph from then on. A
 * launch queues it in one stream, piece after piece: kernels of this device run one at a time anyway.
 */
#include "graphs/graph_exec.h"

#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph_memory.h"
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
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

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
    if (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (instantiateParams->flags & ~(cuuint64_t)INSTANTIATE_FLAGS) {
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

/* ---- launches ---- */

/* Queues it now. A child graph is not its affair. */
static CUresult work_submit(const struct sgp_work *work, struct CUstream_st *stream)
{
    switch (work->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return sgp_launch_submit(work->context, stream, &work->kernel.launch, work->kernel.parameters);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sgp_box_submit(stream, &work->box);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sgp_set_submit(stream, &work->set);
    case CU_GRAPH_NODE_TYPE_HOST:
        return sgp_host_submit(stream, stream, work->host.fn, NULL, work->host.userData);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return sgp_event_record(work->event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return sgp_event_wait(stream, work->event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        sgp_graph_memory_launched(work->memory);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sgp_graph_memory_free(work->memory, stream);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult exec_queue(const struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < exec->nr_nodes && !result; i++) {
        const struct sgp_exec_node *node = &exec->nodes[i];

        if (node->child) {
            result = exec_queue(node->child, stream);
        } else if (node->decision) {
            result = sgp_decision_submit(node->decision, stream);
        } else if (node->is_enabled) {
            result = work_submit(&node->work, stream);
        }
    }
    return result;
}

static const struct sgp_body_ops body_ops = {.queue = exec_queue, .end = sgp_exec_delete};

__attribute__((constructor)) static void lend_body_ops(void)
{
    sgp_decision_set_ops(&body_ops);
}

/* Conditions get their defaults, also those of nodes in bodies: once for the launch. */
static CUresult conditions_assign(const struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < exec->nr_nodes && !result; i++) {
        const struct sgp_decision *decision = exec->nodes[i].decision;

        result = decision ? sgp_condition_assign(decision->condition, stream) : CUDA_SUCCESS;
        for (unsigned int k = 0; decision && k < decision->nr_bodies && !result; k++) {
            result = conditions_assign(decision->bodies[k], stream);
        }
    }
    return result;
}

/* The graph again, for a launch that is captured. */
static CUresult exec_graph(const struct CUgraphExec_st *exec, struct CUgraph_st **made)
{
    struct CUgraph_st *graph = sgp_graph_new();
    struct CUgraphNode_st **nodes = calloc(exec->nr_nodes + 1, sizeof(*nodes));
    CUresult result = graph && nodes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (uint32_t i = 0; i < exec->nr_nodes && !result; i++) {
        struct sgp_work work;

        result = sgp_is_of_memory(exec->nodes[i].work.type) || exec->nodes[i].decision
                     ? CUDA_ERROR_NOT_SUPPORTED
                     : sgp_work_copy(&work, &exec->nodes[i].work);
        if (result) {
            break;
        }
        result = sgp_node_add(graph, NULL, 0, &work, &nodes[i]);
        if (result) {
            sgp_work_drop(&work);
        }
        for (uint32_t k = 0; k < exec->nodes[i].nr_dependencies && !result; k++) {
            result = sgp_node_depend(nodes[i], nodes[exec->nodes[i].dependencies[k]]);
        }
    }
    free(nodes);
    if (result && graph) {
        sgp_graph_delete(graph);
    } else {
        *made = graph;
    }
    return result;
}

static CUresult launch_capture(const struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    struct sgp_work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult result = exec_graph(exec, &work.child);

    return result ? result : sgp_capture_work(stream, &work);
}

/* What an earlier launch allocated must be free again, unless the program has asked for that to be seen to. */
static CUresult memory_check(const struct CUgraphExec_st *exec)
{
    if (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) {
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < exec->nr_nodes; i++) {
        if (exec->nodes[i].work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            sgp_graph_memory_is_live(exec->nodes[i].work.memory)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* Whether it copies from or to memory that is not pinned. */
static bool is_pageable(const struct CUgraphExec_st *exec)
{
    for (uint32_t i = 0; i < exec->nr_nodes; i++) {
        const struct sgp_exec_node *node = &exec->nodes[i];

        if (node->child ? is_pageable(node->child)
                        : node->work.type == CU_GRAPH_NODE_TYPE_MEMCPY && sgp_box_is_pageable(&node->work.box)) {
            return true;
        }
    }
    return false;
}

static CUresult launch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CUresult result = sgp_capture_check(stream);

    if (!result) {
        result = memory_check(exec);
    }
    if (!result && exec->last && exec->last != stream) {
        result = sgp_stream_wait(stream, exec->last, exec->sequence);
    }
    if (!result) {
        result = conditions_assign(exec, stream);
    }
    if (!result) {
        result = exec_queue(exec, stream);
    }
    if (result) {
        return result;
    }
    sgp_object_keep(stream);
    if (exec->last) {
        sgp_object_release(exec->last);
    }
    exec->last = stream;
    exec->sequence = stream->nr_submitted;
    if (is_pageable(exec)) { /* it has been read and written when the launch returns, as with NVIDIA's driver */
        sgp_queue_wait(stream, stream->nr_submitted);
    }
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    if (!sgp_object_is(hGraphExec, SGP_EXEC)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(stream->capture ? launch_capture(hGraphExec, stream) : launch(hGraphExec, stream));
}

/* Nothing has to be brought to a device that is this process. */
SGP_EXPORT CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    result = sgp_object_is(hGraphExec, SGP_EXEC) ? sgp_capture_check(stream) : CUDA_ERROR_INVALID_VALUE;
    return sgp_leave(result);
}
