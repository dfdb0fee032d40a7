/*
 * Launches of what is instantiated: a launch queues its work in one stream, piece after piece, since kernels of this
 * device run one at a time anyway. Behind it stands what runs the graphs that its kernels launched (orders.h), and then
 * what their kernels launched.
 *
 * Wrong when: a kernel waits for a graph that it launched itself, as that runs after it.
 */
#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph_exec.h"
#include "graphs/graph_memory.h"
#include "graphs/orders.h"
#include "stream/queue.h"
#include "stream/stream.h"

/* With a book, or NULL: kernels order nothing. */
static CUresult kernel_submit(const struct sgp_work *work, struct CUstream_st *stream,
                              const struct sgp_order_book *book)
{
    struct sgp_launch launch = work->kernel.launch;

    launch.orders = book && launch.kernel->knows_graphs ? book->orders : NULL;
    return sgp_launch_submit(work->context, stream, &launch, work->kernel.parameters);
}

/* Queues it now. A child graph is not its affair. */
static CUresult work_submit(const struct sgp_work *work, struct CUstream_st *stream, const struct sgp_order_book *book)
{
    switch (work->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_submit(work, stream, book);
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
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return sgp_values_submit(stream, work->values);
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

static CUresult exec_queue(const struct CUgraphExec_st *exec, struct CUstream_st *stream,
                           const struct sgp_order_book *book)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < exec->nr_nodes && !result; i++) {
        const struct sgp_exec_node *node = &exec->nodes[i];

        if (node->child) {
            result = exec_queue(node->child, stream, book);
        } else if (node->decision) {
            result = sgp_decision_submit(node->decision, stream);
        } else if (node->is_enabled) {
            result = work_submit(&node->work, stream, book);
        }
    }
    return result;
}

/* Kernels in bodies order nothing. */
static CUresult body_queue(const struct CUgraphExec_st *body, struct CUstream_st *stream)
{
    return exec_queue(body, stream, NULL);
}

static const struct sgp_body_ops body_ops = {.queue = body_queue, .end = sgp_exec_delete};

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

/* ---- graphs that kernels launch ---- */

static bool may_be_ordered(const struct CUgraphExec_st *exec)
{
    return (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
}

static bool knows_graphs(const struct CUgraphExec_st *exec)
{
    for (uint32_t i = 0; i < exec->nr_nodes; i++) {
        const struct sgp_exec_node *node = &exec->nodes[i];

        if (node->child
                ? knows_graphs(node->child)
                : node->work.type == CU_GRAPH_NODE_TYPE_KERNEL && node->work.kernel.launch.kernel->knows_graphs) {
            return true;
        }
    }
    return false;
}

/* The exec's own; NULL: its kernels order nothing. */
static CUresult book_of(struct CUgraphExec_st *exec, struct CUctx_st *context, struct sgp_order_book **book)
{
    CUresult result = CUDA_SUCCESS;

    if (!exec->book && knows_graphs(exec)) {
        result = sgp_order_book_new(context, may_be_ordered(exec) ? exec : NULL, &exec->book);
    }
    *book = exec->book;
    return result;
}

/* A kernel may have written anything. */
static CUresult run_ordered(struct CUgraphExec_st *exec, struct CUstream_st *aside, struct sgp_agenda *agenda)
{
    struct sgp_order_book *book;
    CUresult result;

    if (!sgp_object_is(exec, SGP_EXEC) || !may_be_ordered(exec)) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    result = book_of(exec, aside->object.context, &book);
    if (result) {
        return result;
    }
    if (book) {
        book->nr_references++;
    }
    result = exec_queue(exec, aside, book);
    sgp_queue_wait(aside, aside->nr_submitted);
    if (book) {
        result = result ? result : sgp_order_book_take(book, agenda);
        sgp_order_book_release(book);
    }
    return result;
}

struct ordered_command {
    struct sgp_command command;
    struct sgp_order_book *book;
};

static CUresult ordered_run(struct sgp_command *command)
{
    const struct sgp_order_book *book = ((struct ordered_command *)command)->book;
    struct sgp_agenda agenda = {0};
    CUresult result;

    sgp_lock();
    result = sgp_order_book_take(book, &agenda);
    while (agenda.nr && !result && !book->aside->object.context->error) {
        result = run_ordered(agenda.items[--agenda.nr], book->aside, &agenda);
    }
    sgp_unlock();
    free(agenda.items);
    return result;
}

static void ordered_finish(struct sgp_command *command)
{
    sgp_order_book_release(((struct ordered_command *)command)->book);
    free(command);
}

static CUresult ordered_submit(struct sgp_order_book *book, struct CUstream_st *stream)
{
    struct ordered_command *command = calloc(1, sizeof(*command));

    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *command = (struct ordered_command){.command = {.run = ordered_run, .finish = ordered_finish}, .book = book};
    book->nr_references++;
    return sgp_queue_submit(stream, &command->command, NULL);
}

/* ---- launches ---- */

static CUresult launch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    struct sgp_order_book *book = NULL;
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
        result = book_of(exec, stream->object.context, &book);
    }
    if (!result) {
        result = exec_queue(exec, stream, book);
    }
    if (!result && book) {
        result = ordered_submit(book, stream);
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
