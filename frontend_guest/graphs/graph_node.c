/*
 * Nodes and their parameters. They travel as CUgraphNodeParams with numbers for handles, a kernel's parameters packed
 * behind, as with a launch. How the program reads them is graph_node_out.c.
 */
#include <string.h>

#include "call/call.h"
#include "code/function.h"
#include "code/launch.h"
#include "context/host_function.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph.h"
#include "graphs/graph_copy.h"
#include "graphs/graph_kept.h"
#include "graphs/graph_update.h"
#include "memory/memory.h"
#include "memory/ranges.h"

/* A node's parameters, ready to be sent. */
struct outgoing {
    CUgraphNodeParams params;
    const struct fgv_function *function; /* NULL: not a kernel */
    void **parameters;
    const void *buffer;         /* instead: packed by the program; or memory operations, without a function */
    uint64_t host;              /* number of a host node's function, 0: it is none */
    struct fgv_staging staging; /* of a copy */
};

static uint32_t parameter_bytes(const struct outgoing *outgoing)
{
    return outgoing->function ? outgoing->function->parameter_bytes
           : outgoing->buffer ? outgoing->params.memOp.count * (uint32_t)sizeof(CUstreamBatchMemOpParams)
                              : 0;
}

static uint32_t is_kernel(const struct outgoing *outgoing)
{
    return outgoing->function && outgoing->function->kind == FGV_HANDLE_KERNEL;
}

static CUresult kernel_prepare(struct outgoing *outgoing)
{
    CUDA_KERNEL_NODE_PARAMS *kernel = &outgoing->params.kernel;
    uint64_t handle = fgv_handle_number(kernel->func ? (const void *)kernel->func : (const void *)kernel->kern);
    struct fgv_function *function = fgv_handle_object(FGV_HANDLE_FUNCTION, handle);
    if (!function) {
        function = fgv_handle_object(FGV_HANDLE_KERNEL, handle);
    }
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = fgv_function_know(function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (kernel->kernelParams && kernel->extra) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (kernel->extra) {
        result = fgv_extra_read(kernel->extra, function->parameter_bytes, &outgoing->buffer);
    } else if (!kernel->kernelParams && function->nr_parameters > 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    outgoing->function = function;
    outgoing->parameters = kernel->kernelParams;
    if (result == CUDA_SUCCESS) {
        fgv_parameters_touch(function, outgoing->parameters, outgoing->buffer);
    }
    kernel->func = (CUfunction)(uintptr_t)handle;
    kernel->kern = NULL;
    kernel->kernelParams = NULL;
    kernel->extra = NULL;
    return result;
}

static CUresult operations_prepare(struct outgoing *outgoing)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS *operations = &outgoing->params.memOp;
    if (operations->count > FGV_MAX_STREAM_OPERATIONS || (operations->count > 0 && !operations->paramArray) ||
        operations->flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Whether a node may be without any is the device's to say: drivers differ. */
    outgoing->buffer = operations->count > 0 ? operations->paramArray : NULL;
    operations->paramArray = NULL;
    return CUDA_SUCCESS;
}

/* Who else may reach the memory: there is one device, and it may. */
static CUresult allocation_prepare(CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
    if (alloc->accessDescCount > 0 && !alloc->accessDescs) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < alloc->accessDescCount; i++) {
        if (alloc->accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            alloc->accessDescs[i].location.id != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    alloc->accessDescs = NULL;
    alloc->accessDescCount = 0;
    alloc->poolProps.win32SecurityAttributes = NULL;
    return CUDA_SUCCESS;
}

/* Of what a program allocated the driver need not know where it ends. */
static CUresult set_prepare(const CUDA_MEMSET_NODE_PARAMS_v2 *set)
{
    return fgv_memory_overruns(set->dst, set->elementSize, set->width, set->height, set->pitch)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

/* The host has a number for the function, and calls nothing of the program's. */
static CUresult host_prepare(struct outgoing *outgoing)
{
    CUDA_HOST_NODE_PARAMS *host = &outgoing->params.host;
    if (!host->fn) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgv_host_function_keep(host->fn, host->userData, NULL, &outgoing->host);
    *host = (CUDA_HOST_NODE_PARAMS){.userData = (void *)(uintptr_t)outgoing->host};
    return result;
}

/* was: the parameters that the node has had in what was instantiated, or NULL. */
static CUresult prepare(struct outgoing *outgoing, const CUgraphNodeParams *params, const CUgraphNodeParams *was)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!params) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *outgoing = (struct outgoing){.params = *params};
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_prepare(outgoing);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return fgv_graph_copy_prepare(&outgoing->params.memcpy.copyParams, was ? &was->memcpy.copyParams : NULL,
                                      &outgoing->staging);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return set_prepare(&outgoing->params.memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_prepare(outgoing);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return operations_prepare(outgoing);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return allocation_prepare(&outgoing->params.alloc);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return fgv_handle_check(FGV_HANDLE_EVENT, fgv_handle_number(params->eventWait.event));
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return fgv_handle_check(FGV_HANDLE_EVENT, fgv_handle_number(params->eventRecord.event));
    default:
        return CUDA_SUCCESS;
    }
}

static void write_params(uint8_t *to, const struct outgoing *outgoing)
{
    memcpy(to, &outgoing->params, sizeof(outgoing->params));
    to += sizeof(outgoing->params);
    if (outgoing->buffer) {
        memcpy(to, outgoing->buffer, parameter_bytes(outgoing));
    } else if (outgoing->parameters) {
        fgv_parameters_pack(to, outgoing->function, outgoing->parameters);
    }
}

/* The graphs of a conditional node, where the program looks for them. */
static CUresult bodies_keep(CUgraphNodeParams *params, const struct fgv_reply_graph_add_node *reply)
{
    const unsigned int nr = params->conditional.size;
    CUgraph *bodies = nr > FGV_MAX_BODIES ? NULL : fgv_kept_block(reply->node, reply->root, nr * sizeof(*bodies));
    if (!bodies) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned int i = 0; i < nr; i++) {
        bodies[i] = (CUgraph)(uintptr_t)reply->bodies[i];
    }
    for (unsigned int i = 0; i < nr; i++) {
        fgv_kept_block(reply->bodies[i], reply->root, 0);
    }
    params->conditional.phGraph_out = bodies;
    return CUDA_SUCCESS;
}

/* What else came of a node that the host has now, or has not. */
static void settle(const struct outgoing *outgoing, CUresult result, uint64_t owner)
{
    if (result == CUDA_SUCCESS) {
        fgv_staging_own(&outgoing->staging, owner);
    } else {
        fgv_staging_drop(&outgoing->staging);
    }
    if (outgoing->host != 0 && result == CUDA_SUCCESS) {
        fgv_host_function_own(owner, outgoing->host);
    } else if (outgoing->host != 0) {
        fgv_host_function_drop(outgoing->host);
    }
}

/* What a new node comes after. */
struct edges {
    const CUgraphNode *nodes;
    const CUgraphEdgeData *data;
    uint32_t nr;
};

static CUresult add_send(const struct outgoing *outgoing, uint64_t graph, const struct edges *edges,
                         struct fgv_reply_graph_add_node *reply)
{
    struct fgv_call call;
    struct fgv_request_graph_add_node *request =
        fgv_call_begin(&call, FGV_CALL_graph_add_node, sizeof(*request),
                       fgv_edges_bytes(edges->nr, false, edges->data) + (uint32_t)sizeof(outgoing->params) +
                           parameter_bytes(outgoing));
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_add_node){.graph = graph,
                                                   .fill = outgoing->staging.fill,
                                                   .drain = outgoing->staging.drain,
                                                   .nr_nodes = edges->nr,
                                                   .has_edges = edges->data != NULL,
                                                   .nr_parameter_bytes = parameter_bytes(outgoing),
                                                   .is_kernel = is_kernel(outgoing)};
    write_params(fgv_edges_write(call.payload, edges->nodes, NULL, edges->data, edges->nr), outgoing);
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    struct outgoing outgoing;
    struct fgv_reply_graph_add_node reply = {0};
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!phGraphNode || !hGraph || (numDependencies > 0 && !dependencies) || !fgv_edges_fit(numDependencies)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = prepare(&outgoing, nodeParams, NULL);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct edges edges = {.nodes = dependencies, .data = dependencyData, .nr = (uint32_t)numDependencies};
    result = add_send(&outgoing, fgv_handle_number(hGraph), &edges, &reply);
    fgv_update_reshaped();
    settle(&outgoing, result, reply.root);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *phGraphNode = (CUgraphNode)(uintptr_t)reply.node;
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        nodeParams->alloc.dptr = reply.address;
        fgv_memory_enter(reply.address, nodeParams->alloc.bytesize, FGV_MEMORY_GRAPH, 0, 0);
    }
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        fgv_user_objects_copy(fgv_kept_root(fgv_handle_number(nodeParams->graph.graph)), reply.root);
    }
    return nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? bodies_keep(nodeParams, &reply) : CUDA_SUCCESS;
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    const uint64_t node = fgv_handle_number(hNode);
    struct fgv_call call;
    struct fgv_request_cuGraphDestroyNode *request =
        fgv_call_begin(&call, FGV_CALL_cuGraphDestroyNode, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->node = node;
    CUresult result = fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS) {
        fgv_update_forget_node(node);
        fgv_update_reshaped();
        fgv_kept_drop(node);
    }
    return result;
}

static CUresult set_send(const struct outgoing *outgoing, uint64_t exec, uint64_t node, bool is_sound,
                         struct fgv_reply_graph_set_node *reply)
{
    struct fgv_call call;
    struct fgv_request_graph_set_node *request =
        fgv_call_begin(&call, FGV_CALL_graph_set_node, sizeof(*request),
                       (uint32_t)sizeof(outgoing->params) + parameter_bytes(outgoing));
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_set_node){.exec = exec,
                                                   .node = node,
                                                   .fill = outgoing->staging.fill,
                                                   .drain = outgoing->staging.drain,
                                                   .nr_parameter_bytes = parameter_bytes(outgoing),
                                                   .is_kernel = is_kernel(outgoing)};
    write_params(call.payload, outgoing);
    return is_sound ? fgv_call_post(&call) : fgv_call_wait(&call, reply, sizeof(*reply));
}

static CUresult set(uint64_t exec, CUgraphNode node, const CUgraphNodeParams *params)
{
    struct outgoing outgoing;
    struct fgv_reply_graph_set_node reply = {0};
    CUgraphNodeParams was;
    struct fgv_staging staging;
    const uint64_t number = fgv_handle_number(node);
    const bool has_been = exec != 0 && fgv_update_copy(exec, number, &was, &staging);
    CUresult result = prepare(&outgoing, params, has_been ? &was : NULL);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool is_sound =
        exec != 0 && !fgv_staging_is_any(&outgoing.staging) && fgv_update_is_sound(exec, number, &outgoing.params);
    result = set_send(&outgoing, exec, number, is_sound, &reply);
    settle(&outgoing, result, exec != 0 ? exec : reply.root);
    if (exec == 0) {
        fgv_update_reshaped();
    } else if (result == CUDA_SUCCESS && !is_sound) {
        fgv_update_remember(exec, number, reply.root, &outgoing.params, &outgoing.staging);
    }
    if (result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        fgv_user_objects_copy(fgv_kept_root(fgv_handle_number(params->graph.graph)), exec);
    }
    return result;
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    if (!hNode) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return set(0, hNode, nodeParams);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    CUresult result = fgv_handle_check(FGV_HANDLE_GRAPH_EXEC, fgv_handle_number(hGraphExec));
    if (result != CUDA_SUCCESS || !hNode) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return set(fgv_handle_number(hGraphExec), hNode, nodeParams);
}

/* A copy that is enabled again is staged as its graph has it; here it has been changed since. */
static CUresult stage_again(uint64_t exec, uint64_t node)
{
    struct outgoing outgoing = {.host = 0};
    struct fgv_reply_graph_set_node reply;
    if (!fgv_update_copy(exec, node, &outgoing.params, &outgoing.staging) || !fgv_staging_is_any(&outgoing.staging)) {
        return CUDA_SUCCESS;
    }
    return set_send(&outgoing, exec, node, false, &reply);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    const uint64_t exec = (uint64_t)(uintptr_t)hGraphExec, node = (uint64_t)(uintptr_t)hNode;
    CUresult result = fgv_handle_check(FGV_HANDLE_GRAPH_EXEC, exec);
    if (result == CUDA_SUCCESS && !hNode) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    CUresult allowed = fgv_call_allowed();
    if (allowed != CUDA_SUCCESS || result != CUDA_SUCCESS) {
        return allowed != CUDA_SUCCESS ? allowed : result;
    }
    const bool is_sound = fgv_update_may_be_disabled(exec, node);
    struct fgv_call call;
    struct fgv_request_cuGraphNodeSetEnabled *request =
        fgv_call_begin(&call, FGV_CALL_cuGraphNodeSetEnabled, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuGraphNodeSetEnabled){.exec = exec, .node = node, .is_enabled = isEnabled};
    result = is_sound ? fgv_call_post(&call) : fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS && !is_sound) {
        fgv_update_remember_disabled(exec, node);
    }
    return result == CUDA_SUCCESS && isEnabled != 0 ? stage_again(exec, node) : result;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags)
{
    if (!pHandle_out || !hGraph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_reply_graph_condition reply;
    struct fgv_request_graph_condition *request = fgv_call_begin(&call, FGV_CALL_graph_condition, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_condition){.graph = fgv_handle_number(hGraph),
                                                    .context = fgv_handle_number(ctx),
                                                    .value = defaultLaunchValue,
                                                    .flags = flags};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        *pHandle_out = reply.condition;
    }
    return result;
}
