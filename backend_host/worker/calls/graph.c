/*
 * Graphs as wholes: their numbers, what is in them, what is instantiated of them. Nodes' parameters are
 * graph_node.c's affair. Simple calls are generated.
 */
#include "calls/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "calls/graph_memory.h"
#include "calls/staging.h"
#include "calls/state.h"
#include "client/arena.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "page/layout.h"

#define MAX_PORT 2 /* CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER */

CUresult fgw_graph_number(struct fgw_worker *worker, enum fgv_handle_kind kind, void *native,
                          enum fgv_handle_kind parent_kind, uint64_t parent, uint64_t *number)
{
    uint64_t known = fgw_handle_number(worker, kind, native);
    if (known != 0) {
        *number = known;
        return CUDA_SUCCESS;
    }
    uint64_t fresh = FGW_HOST_NUMBER | (uint64_t)kind << 56 | ++worker->calls->last_number;
    CUresult result = parent_kind == FGV_HANDLE_KINDS
                          ? fgw_worker_bind(worker, kind, fresh, native)
                          : fgw_worker_bind_under(worker, kind, fresh, native, parent_kind, parent);
    if (result == CUDA_SUCCESS && !fgw_handle_remember_native(worker, kind, fresh)) {
        fgw_worker_unbind(worker, kind, fresh);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    *number = result == CUDA_SUCCESS ? fresh : 0;
    return result;
}

uint64_t fgw_graph_root(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    struct fgw_handle above = fgw_handle_find(worker, kind, number);
    uint64_t root = 0;
    while (above.number != 0) {
        root = above.number;
        above = fgw_handle_above(worker, &above);
    }
    return root;
}

/* ---- nodes and edges in payloads ---- */

/* As the driver knows them where edges begin, or end. */
static CUresult nodes_read(struct fgw_worker *worker, const uint8_t *from, uint32_t nr, bool are_ends,
                           CUgraphNode **nodes)
{
    *nodes = malloc(nr * sizeof(**nodes) + 1);
    if (!*nodes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < nr; i++) {
        uint64_t number;
        void *native;
        memcpy(&number, from + i * sizeof(number), sizeof(number));
        CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_NODE, number, &native);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        (*nodes)[i] = are_ends ? fgw_staging_first(worker, native) : fgw_staging_last(worker, native);
    }
    return CUDA_SUCCESS;
}

static CUresult data_read(const uint8_t *from, uint32_t nr, CUgraphEdgeData **data)
{
    static const uint8_t nothing[sizeof((*data)->reserved)];
    *data = malloc(nr * sizeof(**data) + 1);
    if (!*data) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(*data, from, nr * sizeof(**data));
    for (uint32_t i = 0; i < nr; i++) {
        const CUgraphEdgeData *edge = &(*data)[i];
        if (edge->from_port > MAX_PORT || edge->to_port != 0 || edge->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
            memcmp(edge->reserved, nothing, sizeof(nothing)) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult fgw_edges_read(struct fgw_worker *worker, const struct fgw_request *request, uint32_t nr, bool has_ends,
                        bool has_data, struct fgw_edges *edges, uint64_t *used_bytes)
{
    *edges = (struct fgw_edges){0};
    *used_bytes = (uint64_t)nr * sizeof(uint64_t) * (1u + has_ends + has_data);
    if (*used_bytes > request->payload_bytes) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint8_t *from = request->payload;
    CUresult result = nodes_read(worker, from, nr, false, &edges->nodes);
    from += (uint64_t)nr * sizeof(uint64_t);
    if (result == CUDA_SUCCESS && has_ends) {
        result = nodes_read(worker, from, nr, true, &edges->ends);
        from += (uint64_t)nr * sizeof(uint64_t);
    }
    return result == CUDA_SUCCESS && has_data ? data_read(from, nr, &edges->data) : result;
}

void fgw_edges_free(struct fgw_edges *edges)
{
    free(edges->nodes);
    free(edges->ends);
    free(edges->data);
}

/* ---- graphs ---- */

/* What gets no number is nobody's. */
static CUresult number_new(struct fgw_worker *worker, CUgraph graph, uint64_t *number)
{
    const CUresult result = fgw_graph_number(worker, FGV_HANDLE_GRAPH, graph, FGV_HANDLE_KINDS, 0, number);
    if (result != CUDA_SUCCESS && worker->driver.cuGraphDestroy) {
        worker->driver.cuGraphDestroy(graph);
    }
    return result;
}

CUresult fgw_serve_graph_create(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_create *fixed = request->fixed;
    struct fgv_reply_graph_create *answer = reply;
    CUgraph graph;
    if (!worker->driver.cuGraphCreate) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = worker->driver.cuGraphCreate(&graph, fixed->flags);
    return result != CUDA_SUCCESS ? result : number_new(worker, graph, &answer->graph);
}

CUresult fgw_serve_graph_clone(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_clone *fixed = request->fixed;
    struct fgv_reply_graph_clone *answer = reply;
    void *original;
    CUgraph clone;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &original);
    if (result != CUDA_SUCCESS || !worker->driver.cuGraphClone) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    result = worker->driver.cuGraphClone(&clone, original);
    return result != CUDA_SUCCESS ? result : number_new(worker, clone, &answer->graph);
}

CUresult fgw_serve_graph_find_clone(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_find_clone *fixed = request->fixed;
    struct fgv_reply_graph_find_clone *answer = reply;
    void *original;
    void *graph;
    CUgraphNode node;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_NODE, fixed->node, &original);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph);
    }
    if (result != CUDA_SUCCESS || !worker->driver.cuGraphNodeFindInClone) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    result = worker->driver.cuGraphNodeFindInClone(&node, original, graph);
    node = result == CUDA_SUCCESS ? fgw_staging_known(worker, node) : NULL;
    return !node ? (result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_FOUND)
                 : fgw_graph_number(worker, FGV_HANDLE_GRAPH_NODE, node, FGV_HANDLE_GRAPH, fixed->graph, &answer->node);
}

static CUresult edit(struct fgw_worker *worker, const struct fgv_request_graph_edit *fixed, CUgraph graph,
                     const struct fgw_edges *edges)
{
    const struct fgv_driver *driver = &worker->driver;
    size_t nr = fixed->nr_nodes;
    if (edges->data) {
        CUresult (*with_data)(CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t) =
            fixed->is_removal ? driver->cuGraphRemoveDependencies_v2 : driver->cuGraphAddDependencies_v2;
        return with_data ? with_data(graph, edges->nodes, edges->ends, edges->data, nr) : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult (*plain)(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t) =
        fixed->is_removal ? driver->cuGraphRemoveDependencies : driver->cuGraphAddDependencies;
    return plain ? plain(graph, edges->nodes, edges->ends, nr) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult fgw_serve_graph_edit(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_edit *fixed = request->fixed;
    (void)reply;
    struct fgw_edges edges;
    uint64_t used_bytes;
    void *graph;
    CUresult result =
        fgw_edges_read(worker, request, fixed->nr_nodes, true, fixed->has_edges != 0, &edges, &used_bytes);
    if (result == CUDA_SUCCESS && used_bytes != request->payload_bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph);
    }
    if (result == CUDA_SUCCESS) {
        result = edit(worker, fixed, graph, &edges);
    }
    fgw_edges_free(&edges);
    return result;
}

/* ---- lists ---- */

/* Asks for one list; without arrays for its length. Drivers without edge data give none. */
static CUresult list(const struct fgv_driver *driver, enum fgv_graph_list what, void *of, const struct fgw_edges *to,
                     size_t *nr)
{
    CUresult (*of_node)(CUgraphNode, CUgraphNode *, size_t *) = driver->cuGraphNodeGetDependencies;
    CUresult (*of_node_with_data)(CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *) =
        driver->cuGraphNodeGetDependencies_v2;
    switch (what) {
    case FGV_GRAPH_LIST_NODES:
        return driver->cuGraphGetNodes ? driver->cuGraphGetNodes(of, to->nodes, nr) : CUDA_ERROR_NOT_SUPPORTED;
    case FGV_GRAPH_LIST_ROOTS:
        return driver->cuGraphGetRootNodes ? driver->cuGraphGetRootNodes(of, to->nodes, nr) : CUDA_ERROR_NOT_SUPPORTED;
    case FGV_GRAPH_LIST_EDGES:
        if (driver->cuGraphGetEdges_v2) {
            return driver->cuGraphGetEdges_v2(of, to->nodes, to->ends, to->data, nr);
        }
        return driver->cuGraphGetEdges ? driver->cuGraphGetEdges(of, to->nodes, to->ends, nr)
                                       : CUDA_ERROR_NOT_SUPPORTED;
    case FGV_GRAPH_LIST_DEPENDENTS:
        of_node = driver->cuGraphNodeGetDependentNodes;
        of_node_with_data = driver->cuGraphNodeGetDependentNodes_v2;
        break;
    default:
        break;
    }
    if (of_node_with_data) {
        return of_node_with_data(of, to->nodes, to->data, nr);
    }
    return of_node ? of_node(of, to->nodes, nr) : CUDA_ERROR_NOT_SUPPORTED;
}

/* The part of the list that was asked for, as numbers. */
static CUresult tell_list(struct fgw_worker *worker, const struct fgv_request_graph_list *fixed, uint64_t graph,
                          const struct fgw_edges *all, uint32_t nr)
{
    uint8_t *to = fgw_arena_chunk(worker, fixed->chunk);
    if (!to || nr > worker->layout.chunk_bytes / FGV_GRAPH_LIST_ENTRY_BYTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < nr; i++) {
        uint64_t number[2] = {0, 0};
        CUresult result = fgw_graph_number(worker, FGV_HANDLE_GRAPH_NODE, all->nodes[fixed->first + i],
                                           FGV_HANDLE_GRAPH, graph, &number[0]);
        if (result == CUDA_SUCCESS && fixed->what == FGV_GRAPH_LIST_EDGES) {
            result = fgw_graph_number(worker, FGV_HANDLE_GRAPH_NODE, all->ends[fixed->first + i], FGV_HANDLE_GRAPH,
                                      graph, &number[1]);
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        memcpy(to + (uint64_t)i * 8, &number[0], 8);
        memcpy(to + (uint64_t)(nr + i) * 8, &number[1], 8);
        memcpy(to + (uint64_t)(2 * nr + i) * 8, &all->data[fixed->first + i], 8);
    }
    return CUDA_SUCCESS;
}

CUresult fgw_serve_graph_list(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_list *fixed = request->fixed;
    struct fgv_reply_graph_list *answer = reply;
    bool is_of_node = fixed->what == FGV_GRAPH_LIST_DEPENDENCIES || fixed->what == FGV_GRAPH_LIST_DEPENDENTS;
    const struct fgw_handle handle =
        fgw_handle_find(worker, is_of_node ? FGV_HANDLE_GRAPH_NODE : FGV_HANDLE_GRAPH, fixed->handle);
    if (handle.number == 0 || fixed->what > FGV_GRAPH_LIST_DEPENDENTS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t graph = is_of_node ? fgw_handle_above(worker, &handle).number : fixed->handle;
    void *of = fixed->what == FGV_GRAPH_LIST_DEPENDENCIES ? (void *)fgw_staging_first(worker, handle.native)
               : fixed->what == FGV_GRAPH_LIST_DEPENDENTS ? (void *)fgw_staging_last(worker, handle.native)
                                                          : handle.native;
    struct fgw_edges all = {0};
    size_t nr_all = 0;
    CUresult result = list(&worker->driver, fixed->what, of, &all, &nr_all);
    answer->nr_all = nr_all;
    const bool is_length_alone = fixed->capacity == 0 || fixed->first >= nr_all;
    if (result != CUDA_SUCCESS || nr_all == 0 || (is_length_alone && !worker->calls->has_staging)) {
        return result;
    }
    all.nodes = calloc(nr_all, sizeof(*all.nodes));
    all.ends = calloc(nr_all, sizeof(*all.ends));
    all.data = calloc(nr_all, sizeof(*all.data));
    size_t nr = nr_all;
    result = all.nodes && all.ends && all.data ? list(&worker->driver, fixed->what, of, &all, &nr)
                                               : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && nr == nr_all) {
        nr_all = fgw_staging_leave_out(worker, fixed->what, all.nodes, all.ends, all.data, nr_all);
        answer->nr_all = nr_all;
        uint64_t left = fixed->first < nr_all ? nr_all - fixed->first : 0;
        answer->nr = left < fixed->capacity ? (uint32_t)left : fixed->capacity;
        result = answer->nr != 0 ? tell_list(worker, fixed, graph, &all, answer->nr) : CUDA_SUCCESS;
    }
    fgw_edges_free(&all);
    return result;
}

/* ---- what is instantiated ---- */

static CUresult instantiate(struct fgw_worker *worker, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                            CUgraphExec *exec)
{
    const struct fgv_driver *driver = &worker->driver;
    if (driver->cuGraphInstantiateWithParams) {
        return driver->cuGraphInstantiateWithParams(exec, graph, params);
    }
    return driver->cuGraphInstantiateWithFlags ? driver->cuGraphInstantiateWithFlags(exec, graph, params->flags)
                                               : CUDA_ERROR_NOT_SUPPORTED;
}

/* Kernels launch a graph by the driver's own handle, which each can read in %current_graph_exec. So it is the number of
 * such a graph; what comes back of it is looked up, as any number. What it launches ends before what follows in its
 * stream begins: it is charged, and its turn ends, as that of one long launch. */
static uint64_t exec_number(const struct fgv_request_graph_instantiate *fixed, CUgraphExec exec)
{
    return fixed->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? (uint64_t)(uintptr_t)exec : fixed->exec;
}

CUresult fgw_serve_graph_instantiate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_instantiate *fixed = request->fixed;
    struct fgv_reply_graph_instantiate *answer = reply;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = fixed->flags};
    void *graph;
    void *stream;
    CUgraphExec exec;
    CUresult result = fgw_worker_can_bind(worker, FGV_HANDLE_GRAPH_EXEC, fixed->exec);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph);
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    params.hUploadStream = stream;
    result = instantiate(worker, graph, &params, &exec);
    bool is_doubtful = false;
    if (result == CUDA_SUCCESS &&
        fgw_graph_memory_instantiated(worker, fixed->graph, exec, &is_doubtful) != CUDA_SUCCESS) {
        worker->driver.cuGraphExecDestroy(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    answer->error = (uint32_t)result;
    answer->result = params.result_out;
    answer->is_doubtful = is_doubtful;
    if (result == CUDA_SUCCESS) {
        answer->number = exec_number(fixed, exec);
        result = fgw_worker_bind(worker, FGV_HANDLE_GRAPH_EXEC, answer->number, exec);
        if (result != CUDA_SUCCESS) {
            worker->driver.cuGraphExecDestroy(exec);
        }
        return result;
    }
    CUgraphNode culprit = params.hErrNode_out ? fgw_staging_known(worker, params.hErrNode_out) : NULL;
    answer->node = culprit ? fgw_handle_number(worker, FGV_HANDLE_GRAPH_NODE, culprit) : 0;
    return CUDA_SUCCESS;
}

CUresult fgw_serve_graph_update(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_update *fixed = request->fixed;
    struct fgv_reply_graph_update *answer = reply;
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    void *exec;
    void *graph;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_EXEC, fixed->exec, &exec);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (worker->driver.cuGraphExecUpdate_v2) {
        result = worker->driver.cuGraphExecUpdate_v2(exec, graph, &info);
    } else {
        result = worker->driver.cuGraphExecUpdate
                     ? worker->driver.cuGraphExecUpdate(exec, graph, &info.errorNode, &info.result)
                     : CUDA_ERROR_NOT_SUPPORTED;
    }
    answer->error = (uint32_t)result;
    answer->result = info.result;
    void *nodes[] = {info.errorNode, info.errorFromNode};
    uint64_t *numbers[] = {&answer->node, &answer->from_node};
    for (int i = 0; i < 2; i++) {
        CUgraphNode known = nodes[i] ? fgw_staging_known(worker, nodes[i]) : NULL;
        if (known) {
            fgw_graph_number(worker, FGV_HANDLE_GRAPH_NODE, known, FGV_HANDLE_GRAPH, fixed->graph, numbers[i]);
        }
    }
    return CUDA_SUCCESS;
}

CUresult fgw_serve_graph_memory(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_memory *fixed = request->fixed;
    struct fgv_reply_graph_memory *answer = reply;
    CUgraphMem_attribute attribute = fixed->attribute;
    cuuint64_t value = 0;
    if (attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult (*call)(CUdevice, CUgraphMem_attribute, void *) =
        fixed->is_reset ? worker->driver.cuDeviceSetGraphMemAttribute : worker->driver.cuDeviceGetGraphMemAttribute;
    CUresult result = call ? call(worker->device, attribute, &value) : CUDA_ERROR_NOT_SUPPORTED;
    answer->value = value;
    return result;
}
