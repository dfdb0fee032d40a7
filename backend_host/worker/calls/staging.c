/* Copies of graphs from and to ordinary memory: see staging.h. */
#include "calls/staging.h"

#include <stdlib.h>

#include "calls/host_function.h"
#include "calls/state.h"
#include "client/handles.h"

static bool is_staging(const struct fgw_worker *worker, CUgraphNode node, enum fgv_host_node which)
{
    const struct fgv_driver *driver = &worker->driver;
    CUDA_HOST_NODE_PARAMS host = {0};
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    return node && driver->cuGraphNodeGetType && driver->cuGraphNodeGetType(node, &type) == CUDA_SUCCESS &&
           type == CU_GRAPH_NODE_TYPE_HOST && driver->cuGraphHostNodeGetParams &&
           driver->cuGraphHostNodeGetParams(node, &host) == CUDA_SUCCESS && fgw_host_node_kind(&host) == which;
}

static bool is_copy(const struct fgw_worker *worker, CUgraphNode node)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    return node && worker->driver.cuGraphNodeGetType &&
           worker->driver.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEMCPY;
}

/* The nodes before this one, or behind it, and the data of the edges between: as many as there is room for. */
static CUresult neighbours(const struct fgw_worker *worker, CUgraphNode node, bool is_behind, CUgraphNode *nodes,
                           CUgraphEdgeData *data, size_t *nr)
{
    const struct fgv_driver *driver = &worker->driver;
    CUresult (*with_data)(CUgraphNode, CUgraphNode *, CUgraphEdgeData *, size_t *) =
        is_behind ? driver->cuGraphNodeGetDependentNodes_v2 : driver->cuGraphNodeGetDependencies_v2;
    CUresult (*plain)(CUgraphNode, CUgraphNode *, size_t *) =
        is_behind ? driver->cuGraphNodeGetDependentNodes : driver->cuGraphNodeGetDependencies;
    return with_data ? with_data(node, nodes, data, nr) : plain ? plain(node, nodes, nr) : CUDA_ERROR_NOT_SUPPORTED;
}

/* The only node on that side of this one; NULL: there are none, or several. */
static CUgraphNode only_neighbour(const struct fgw_worker *worker, CUgraphNode node, bool is_behind)
{
    CUgraphNode nodes[2] = {NULL, NULL};
    CUgraphEdgeData data[2];
    size_t nr = 2;
    return neighbours(worker, node, is_behind, nodes, data, &nr) == CUDA_SUCCESS && nr == 1 ? nodes[0] : NULL;
}

/* What fills the copy's buffer, or drains it; NULL: nothing does. */
static CUgraphNode staging_of(const struct fgw_worker *worker, CUgraphNode copy, enum fgv_host_node which)
{
    if (!worker->calls->has_staging || !is_copy(worker, copy)) {
        return NULL;
    }
    CUgraphNode node = only_neighbour(worker, copy, which == FGV_HOST_NODE_DRAIN);
    return is_staging(worker, node, which) ? node : NULL;
}

CUgraphNode fgw_staging_first(const struct fgw_worker *worker, CUgraphNode node)
{
    CUgraphNode fill = staging_of(worker, node, FGV_HOST_NODE_FILL);
    return fill ? fill : node;
}

CUgraphNode fgw_staging_last(const struct fgw_worker *worker, CUgraphNode node)
{
    CUgraphNode drain = staging_of(worker, node, FGV_HOST_NODE_DRAIN);
    return drain ? drain : node;
}

CUgraphNode fgw_staging_known(const struct fgw_worker *worker, CUgraphNode node)
{
    if (!worker->calls->has_staging) {
        return node;
    }
    const bool fills = is_staging(worker, node, FGV_HOST_NODE_FILL);
    if (!fills && !is_staging(worker, node, FGV_HOST_NODE_DRAIN)) {
        return node;
    }
    CUgraphNode copy = only_neighbour(worker, node, fills);
    return is_copy(worker, copy) ? copy : NULL;
}

size_t fgw_staging_leave_out(const struct fgw_worker *worker, uint32_t list, CUgraphNode *nodes, CUgraphNode *ends,
                             CUgraphEdgeData *data, size_t nr)
{
    const bool are_edges = list == FGV_GRAPH_LIST_EDGES, are_all = list == FGV_GRAPH_LIST_NODES;
    size_t nr_left = 0;
    for (size_t i = 0; i < nr && worker->calls->has_staging; i++) {
        CUgraphNode node = fgw_staging_known(worker, nodes[i]);
        CUgraphNode end = are_edges ? fgw_staging_known(worker, ends[i]) : NULL;
        if (!node || (are_all && node != nodes[i]) || (are_edges && (!end || end == node))) {
            continue;
        }
        nodes[nr_left] = node;
        ends[nr_left] = end;
        data[nr_left++] = data[i];
    }
    return worker->calls->has_staging ? nr_left : nr;
}

static uint64_t number_of(const struct fgw_worker *worker, CUgraphNode staging)
{
    CUDA_HOST_NODE_PARAMS host = {0};
    return staging && worker->driver.cuGraphHostNodeGetParams(staging, &host) == CUDA_SUCCESS
               ? (uint64_t)(uintptr_t)host.userData
               : 0;
}

void fgw_staging_numbers(const struct fgw_worker *worker, CUgraphNode copy, uint64_t *fill, uint64_t *drain)
{
    *fill = number_of(worker, staging_of(worker, copy, FGV_HOST_NODE_FILL));
    *drain = number_of(worker, staging_of(worker, copy, FGV_HOST_NODE_DRAIN));
}

/* ---- made, changed and destroyed ---- */

static CUresult add(const struct fgw_worker *worker, CUgraph graph, const CUgraphNode *behind,
                    const CUgraphEdgeData *data, uint32_t nr, CUgraphNodeParams *params, CUgraphNode *node)
{
    const struct fgv_driver *driver = &worker->driver;
    if (driver->cuGraphAddNode_v2) {
        return driver->cuGraphAddNode_v2(node, graph, behind, data, nr, params);
    }
    return driver->cuGraphAddNode && !data ? driver->cuGraphAddNode(node, graph, behind, nr, params)
                                           : CUDA_ERROR_NOT_SUPPORTED;
}

static CUgraphNodeParams host_params(struct fgw_worker *worker, uint64_t number, enum fgv_host_node which)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    fgw_host_node(worker, number, which, &params.host);
    return params;
}

/* A staging node has a number where the driver once did not say what it was. */
static void drop(struct fgw_worker *worker, CUgraphNode node)
{
    if (node && worker->driver.cuGraphDestroyNode && worker->driver.cuGraphDestroyNode(node) == CUDA_SUCCESS) {
        const uint64_t number = fgw_handle_number(worker, FGV_HANDLE_GRAPH_NODE, node);
        if (number != 0) {
            fgw_worker_unbind(worker, FGV_HANDLE_GRAPH_NODE, number);
        }
    }
}

/* A node that fills, behind these. */
static CUresult add_fill(struct fgw_worker *worker, CUgraph graph, const CUgraphNode *behind,
                         const CUgraphEdgeData *data, uint32_t nr, uint64_t number, CUgraphNode *fill)
{
    CUgraphNodeParams host = host_params(worker, number, FGV_HOST_NODE_FILL);
    return add(worker, graph, behind, data, nr, &host, fill);
}

static CUresult add_drain(struct fgw_worker *worker, CUgraph graph, CUgraphNode copy, uint64_t number,
                          CUgraphNode *drain)
{
    CUgraphNodeParams host = host_params(worker, number, FGV_HOST_NODE_DRAIN);
    return add(worker, graph, &copy, NULL, 1, &host, drain);
}

CUresult fgw_staging_add(struct fgw_worker *worker, CUgraph graph, const CUgraphNode *behind,
                         const CUgraphEdgeData *data, uint32_t nr, const struct fgw_staging *staging,
                         CUgraphNodeParams *params, CUgraphNode *node)
{
    CUgraphNode fill = NULL, drain = NULL;
    CUresult result = CUDA_SUCCESS;
    *node = NULL;
    if (staging->fill != 0) {
        result = add_fill(worker, graph, behind, data, nr, staging->fill, &fill);
        behind = &fill;
        data = NULL;
        nr = 1;
    }
    if (result == CUDA_SUCCESS) {
        result = add(worker, graph, behind, data, nr, params, node);
    }
    if (result == CUDA_SUCCESS && staging->drain != 0) {
        result = add_drain(worker, graph, *node, staging->drain, &drain);
    }
    if (result != CUDA_SUCCESS) {
        drop(worker, *node);
        drop(worker, fill);
        *node = NULL;
    }
    return result;
}

static CUresult set(const struct fgw_worker *worker, CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    const struct fgv_driver *driver = &worker->driver;
    if (exec) {
        return driver->cuGraphExecNodeSetParams ? driver->cuGraphExecNodeSetParams(exec, node, params)
                                                : CUDA_ERROR_NOT_SUPPORTED;
    }
    return driver->cuGraphNodeSetParams ? driver->cuGraphNodeSetParams(node, params) : CUDA_ERROR_NOT_SUPPORTED;
}

/* What stages the copy gets this number, if anything does; with 0 it has nothing to do. */
static CUresult set_staging(struct fgw_worker *worker, CUgraphExec exec, CUgraphNode copy, uint64_t number,
                            enum fgv_host_node which)
{
    CUgraphNode staging = staging_of(worker, copy, which);
    if (!staging) {
        return CUDA_SUCCESS;
    }
    CUgraphNodeParams host = host_params(worker, number, which);
    return set(worker, exec, staging, &host);
}

/* Takes the edges of the copy over to a node that is in the graph already: those that lead to it, or away from it. */
static CUresult take_edges(const struct fgw_worker *worker, CUgraph graph, CUgraphNode copy, CUgraphNode staging,
                           bool is_behind)
{
    const struct fgv_driver *driver = &worker->driver;
    size_t nr = 0;
    if (!driver->cuGraphAddDependencies || !driver->cuGraphRemoveDependencies) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = neighbours(worker, copy, is_behind, NULL, NULL, &nr);
    CUgraphNode *others = calloc(nr + 1, sizeof(*others));
    CUgraphEdgeData *data = calloc(nr + 1, sizeof(*data));
    if (result == CUDA_SUCCESS && nr != 0) {
        result = others && data ? neighbours(worker, copy, is_behind, others, data, &nr) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < nr && result == CUDA_SUCCESS; i++) {
        if (others[i] == staging) {
            continue;
        }
        result = is_behind ? driver->cuGraphRemoveDependencies(graph, &copy, &others[i], 1)
                           : driver->cuGraphRemoveDependencies(graph, &others[i], &copy, 1);
        if (result == CUDA_SUCCESS) {
            result = is_behind ? driver->cuGraphAddDependencies(graph, &staging, &others[i], 1)
                               : driver->cuGraphAddDependencies(graph, &others[i], &staging, 1);
        }
    }
    free(others);
    free(data);
    return result;
}

/* Puts in what the copy has not had until now. */
static CUresult put_in(struct fgw_worker *worker, CUgraph graph, CUgraphNode copy, uint64_t number,
                       enum fgv_host_node which)
{
    CUgraphNode staging = NULL;
    if (which == FGV_HOST_NODE_DRAIN) {
        CUresult result = add_drain(worker, graph, copy, number, &staging);
        return result == CUDA_SUCCESS ? take_edges(worker, graph, copy, staging, true) : result;
    }
    CUresult result = add_fill(worker, graph, NULL, NULL, 0, number, &staging);
    if (result == CUDA_SUCCESS) {
        result = take_edges(worker, graph, copy, staging, false);
    }
    return result == CUDA_SUCCESS ? worker->driver.cuGraphAddDependencies(graph, &staging, &copy, 1) : result;
}

CUresult fgw_staging_set(struct fgw_worker *worker, CUgraphExec exec, CUgraphNode node, CUgraph graph,
                         const struct fgw_staging *staging, CUgraphNodeParams *params)
{
    const bool wants_fill = staging->fill != 0 && !staging_of(worker, node, FGV_HOST_NODE_FILL);
    const bool wants_drain = staging->drain != 0 && !staging_of(worker, node, FGV_HOST_NODE_DRAIN);
    if (exec && (wants_fill || wants_drain)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = set(worker, exec, node, params);
    if (result == CUDA_SUCCESS) {
        result = set_staging(worker, exec, node, staging->fill, FGV_HOST_NODE_FILL);
    }
    if (result == CUDA_SUCCESS) {
        result = set_staging(worker, exec, node, staging->drain, FGV_HOST_NODE_DRAIN);
    }
    if (result == CUDA_SUCCESS && wants_fill) {
        result = put_in(worker, graph, node, staging->fill, FGV_HOST_NODE_FILL);
    }
    if (result == CUDA_SUCCESS && wants_drain) {
        result = put_in(worker, graph, node, staging->drain, FGV_HOST_NODE_DRAIN);
    }
    return result;
}

CUresult fgw_staging_destroy(struct fgw_worker *worker, CUgraphNode node)
{
    CUgraphNode fill = staging_of(worker, node, FGV_HOST_NODE_FILL);
    CUgraphNode drain = staging_of(worker, node, FGV_HOST_NODE_DRAIN);
    CUresult result =
        worker->driver.cuGraphDestroyNode ? worker->driver.cuGraphDestroyNode(node) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        drop(worker, fill);
        drop(worker, drain);
    }
    return result;
}

CUresult fgw_staging_set_enabled(struct fgw_worker *worker, CUgraphExec exec, CUgraphNode node, unsigned int is_enabled)
{
    struct fgw_staging staging = {0};
    CUresult result = worker->driver.cuGraphNodeSetEnabled
                          ? worker->driver.cuGraphNodeSetEnabled(exec, node, is_enabled)
                          : CUDA_ERROR_NOT_SUPPORTED;
    if (is_enabled != 0) {
        fgw_staging_numbers(worker, node, &staging.fill, &staging.drain);
    }
    if (result == CUDA_SUCCESS) {
        result = set_staging(worker, exec, node, staging.fill, FGV_HOST_NODE_FILL);
    }
    return result == CUDA_SUCCESS ? set_staging(worker, exec, node, staging.drain, FGV_HOST_NODE_DRAIN) : result;
}
