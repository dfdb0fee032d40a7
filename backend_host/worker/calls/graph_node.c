/*
 * Nodes' parameters. They travel as CUgraphNodeParams, in which handles are numbers and pointers are not looked at:
 * what the driver gets is put together anew, member by member, from what was checked. A kernel's parameters follow
 * packed, as with a launch.
 *
 * The driver may read and write host memory of the guest's heap only: any other address would be the worker's own.
 * A host node's function is one of the worker's, which has the guest run its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "calls/graph.h"
#include "calls/graph_memory.h"
#include "calls/host_function.h"
#include "calls/lack.h"
#include "calls/memory.h"
#include "calls/staging.h"
#include "calls/stream.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "client/taken.h"
#include "page/layout.h"

/* Parameters on their way to the driver, and what they point at. */
struct node_params {
    CUgraphNodeParams native;
    void *extra[5];
    size_t parameter_bytes;
};

static CUresult find_context(struct fgw_worker *worker, const void *number, CUcontext *native)
{
    struct fgw_context *context = number ? fgw_context_find(worker, (uint64_t)(uintptr_t)number) : worker->current;
    *native = context ? context->native : NULL;
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult kernel_in(struct fgw_worker *worker, const CUDA_KERNEL_NODE_PARAMS *sent, bool is_kernel,
                          uint8_t *parameters, uint32_t parameter_bytes, struct node_params *params)
{
    const struct fgw_handle handle =
        fgw_handle_find(worker, is_kernel ? FGV_HANDLE_KERNEL : FGV_HANDLE_FUNCTION, (uint64_t)(uintptr_t)sent->func);
    struct fgw_kernel *kernel;
    CUresult result = handle.number != 0 ? fgw_kernel_layout(worker, &handle, &kernel) : CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (kernel->parameter_bytes != parameter_bytes) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = fgw_taken_local(worker, kernel->local_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fgw_kernel_lead(worker, &handle, parameters, parameter_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    params->parameter_bytes = parameter_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &params->parameter_bytes,
                     CU_LAUNCH_PARAM_END};
    memcpy(params->extra, extra, sizeof(extra));
    params->native.kernel = (CUDA_KERNEL_NODE_PARAMS){
        .func = is_kernel ? NULL : handle.native,
        .gridDimX = sent->gridDimX,
        .gridDimY = sent->gridDimY,
        .gridDimZ = sent->gridDimZ,
        .blockDimX = sent->blockDimX,
        .blockDimY = sent->blockDimY,
        .blockDimZ = sent->blockDimZ,
        .sharedMemBytes = sent->sharedMemBytes,
        .extra = parameter_bytes != 0 ? params->extra : NULL,
        .kern = is_kernel ? handle.native : NULL,
    };
    return find_context(worker, sent->ctx, &params->native.kernel.ctx);
}

/* Whether all bytes of one side of a copy lie in the guest's heap. */
static bool is_in_heap(const struct fgw_worker *worker, const void *start, const CUDA_MEMCPY3D *copy, size_t x,
                       size_t y, size_t z, size_t pitch, size_t height)
{
    uint64_t slice, first, last, at, bytes;
    uint64_t rows, slices;
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0 ||
        __builtin_mul_overflow((uint64_t)pitch, (uint64_t)height, &slice) ||
        __builtin_mul_overflow((uint64_t)y, (uint64_t)pitch, &rows) ||
        __builtin_mul_overflow((uint64_t)z, slice, &slices) || __builtin_add_overflow(rows, slices, &first) ||
        __builtin_add_overflow(first, (uint64_t)x, &first) ||
        __builtin_mul_overflow((uint64_t)(copy->Height - 1), (uint64_t)pitch, &rows) ||
        __builtin_mul_overflow((uint64_t)(copy->Depth - 1), slice, &slices) ||
        __builtin_add_overflow(rows, slices, &last) ||
        __builtin_add_overflow(last, (uint64_t)copy->WidthInBytes, &bytes) ||
        __builtin_add_overflow((uint64_t)(uintptr_t)start, first, &at)) {
        return false;
    }
    return fgw_memory_is_own_heap(worker, at, bytes);
}

static CUresult handle_in(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *number, void *to)
{
    void *native;
    CUresult result = fgw_worker_find(worker, kind, (uint64_t)(uintptr_t)number, &native);
    if (result == CUDA_SUCCESS) {
        memcpy(to, &native, sizeof(native));
    }
    return result;
}

/* One end of a copy is the device's, an array, or the host's: that is looked at elsewhere. NULL: no array. */
static CUresult end_in(struct fgw_worker *worker, CUmemorytype type, CUarray number, CUarray *array)
{
    *array = NULL;
    if (type == CU_MEMORYTYPE_ARRAY) {
        return handle_in(worker, FGV_HANDLE_ARRAY, number, array);
    }
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult copy_in(struct fgw_worker *worker, const CUDA_MEMCPY_NODE_PARAMS *sent, struct node_params *params)
{
    const CUDA_MEMCPY3D *copy = &sent->copyParams;
    CUDA_MEMCPY3D *native = &params->native.memcpy.copyParams;
    bool is_from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST;
    bool is_to_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST;
    CUarray from, to;
    CUresult result = end_in(worker, copy->srcMemoryType, copy->srcArray, &from);
    if (result == CUDA_SUCCESS) {
        result = end_in(worker, copy->dstMemoryType, copy->dstArray, &to);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((is_from_host && !is_in_heap(worker, copy->srcHost, copy, copy->srcXInBytes, copy->srcY, copy->srcZ,
                                     copy->srcPitch, copy->srcHeight)) ||
        (is_to_host && !is_in_heap(worker, copy->dstHost, copy, copy->dstXInBytes, copy->dstY, copy->dstZ,
                                   copy->dstPitch, copy->dstHeight))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *native = *copy;
    native->srcDevice = fgw_worker_address(worker, copy->srcDevice);
    native->dstDevice = fgw_worker_address(worker, copy->dstDevice);
    native->srcArray = from;
    native->dstArray = to;
    native->reserved0 = NULL;
    native->reserved1 = NULL;
    native->srcLOD = 0;
    native->dstLOD = 0;
    return find_context(worker, sent->copyCtx, &params->native.memcpy.copyCtx);
}

/* Drivers number the handles of each graph anew, so one is known by its graph and its value: by the outermost graph, as
 * a body uses its handles. Inverted, as small numbers are those of default streams. */
static uint64_t condition_number(uint64_t root, CUgraphConditionalHandle condition)
{
    return ~(condition ^ root * UINT64_C(0x9e3779b97f4a7c15));
}

static CUresult conditional_in(struct fgw_worker *worker, const CUDA_CONDITIONAL_NODE_PARAMS *sent, uint64_t root,
                               struct node_params *params)
{
    if (fgw_handle_find(worker, FGW_HANDLE_GRAPH_CONDITION, condition_number(root, sent->handle)).number == 0 ||
        (unsigned int)sent->type > CU_GRAPH_COND_TYPE_SWITCH || sent->size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sent->size > FGV_MAX_BODIES) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    params->native.conditional =
        (CUDA_CONDITIONAL_NODE_PARAMS){.handle = sent->handle, .type = sent->type, .size = sent->size};
    return find_context(worker, sent->ctx, &params->native.conditional.ctx);
}

/* On the client's one device, for itself. */
static CUresult allocation_in(struct fgw_worker *worker, const CUDA_MEM_ALLOC_NODE_PARAMS *sent,
                              CUDA_MEM_ALLOC_NODE_PARAMS *native)
{
    const CUmemPoolProps *properties = &sent->poolProps;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || sent->bytesize == 0 ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->location.id != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *native = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}},
        .bytesize = sent->bytesize};
    return CUDA_SUCCESS;
}

/* `operations` are private copies. */
static CUresult operations_in(struct fgw_worker *worker, const CUDA_BATCH_MEM_OP_NODE_PARAMS *sent, uint8_t *operations,
                              uint32_t bytes, struct node_params *params)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS *native = &params->native.memOp;
    *native = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = sent->count,
                                              .paramArray = (CUstreamBatchMemOpParams *)(void *)operations};
    if (sent->count > FGV_MAX_STREAM_OPERATIONS || bytes != sent->count * sizeof(*native->paramArray) ||
        !fgw_operations_are_known(native->paramArray, native->count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgw_operations_lead(worker, native->paramArray, native->count);
    return find_context(worker, sent->ctx, &native->ctx);
}

/* sent is a private copy; root is the node's outermost graph. */
static CUresult params_in(struct fgw_worker *worker, const CUgraphNodeParams *sent, bool is_kernel, uint8_t *parameters,
                          uint32_t parameter_bytes, uint64_t root, struct node_params *params)
{
    *params = (struct node_params){.native = {.type = sent->type}};
    CUgraphNodeParams *native = &params->native;
    switch (sent->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_in(worker, &sent->kernel, is_kernel, parameters, parameter_bytes, params);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_in(worker, &sent->memcpy, params);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        native->memset = sent->memset;
        native->memset.dst = fgw_worker_address(worker, sent->memset.dst);
        return find_context(worker, sent->memset.ctx, &native->memset.ctx);
    case CU_GRAPH_NODE_TYPE_HOST:
        fgw_host_node(worker, (uint64_t)(uintptr_t)sent->host.userData, FGV_HOST_NODE_PROGRAM, &native->host);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        native->graph.ownership = sent->graph.ownership;
        return sent->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE
                   ? handle_in(worker, FGV_HANDLE_GRAPH, sent->graph.graph, &native->graph.graph)
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return handle_in(worker, FGV_HANDLE_EVENT, sent->eventWait.event, &native->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return handle_in(worker, FGV_HANDLE_EVENT, sent->eventRecord.event, &native->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return allocation_in(worker, &sent->alloc, &native->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        native->free.dptr = sent->free.dptr;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return operations_in(worker, &sent->memOp, parameters, parameter_bytes, params);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return conditional_in(worker, &sent->conditional, root, params);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* The rest of a payload is CUgraphNodeParams and packed parameters, both copied before they are looked at. */
struct rest_of_payload {
    CUgraphNodeParams sent;
    _Alignas(16) uint8_t parameters[FGW_MAX_PARAMETER_BYTES];
};

static bool rest_read(struct fgw_worker *worker, const struct fgw_request *request, uint64_t used_bytes,
                      uint32_t parameter_bytes, struct rest_of_payload *rest)
{
    if (parameter_bytes > sizeof(rest->parameters) ||
        request->payload_bytes != used_bytes + sizeof(rest->sent) + parameter_bytes) {
        fgw_count(&worker->slot->nr_refused, 1);
        return false;
    }
    memcpy(&rest->sent, request->payload + used_bytes, sizeof(rest->sent));
    memcpy(rest->parameters, request->payload + used_bytes + sizeof(rest->sent), parameter_bytes);
    return true;
}

/* Copies alone are. */
static bool may_be_staged(struct fgw_worker *worker, const CUgraphNodeParams *sent, const struct fgw_staging *staging)
{
    const bool may_be = sent->type == CU_GRAPH_NODE_TYPE_MEMCPY || (staging->fill == 0 && staging->drain == 0);
    if (!may_be) {
        fgw_count(&worker->slot->nr_refused, 1);
    }
    return may_be;
}

/* Numbers of the graphs that a conditional node runs. */
static CUresult tell_bodies(struct fgw_worker *worker, const CUDA_CONDITIONAL_NODE_PARAMS *made, uint64_t node,
                            uint64_t *bodies)
{
    CUresult result = made->phGraph_out ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    for (unsigned int i = 0; i < made->size && result == CUDA_SUCCESS; i++) {
        result =
            fgw_graph_number(worker, FGV_HANDLE_GRAPH, made->phGraph_out[i], FGV_HANDLE_GRAPH_NODE, node, &bodies[i]);
    }
    return result;
}

CUresult fgw_serve_graph_add_node(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_add_node *fixed = request->fixed;
    struct fgv_reply_graph_add_node *answer = reply;
    struct fgw_edges edges;
    uint64_t used_bytes;
    struct rest_of_payload rest;
    struct node_params params;
    void *graph;
    CUgraphNode node = NULL;
    const struct fgw_staging staging = {.fill = fixed->fill, .drain = fixed->drain};
    CUresult result =
        fgw_edges_read(worker, request, fixed->nr_nodes, false, fixed->has_edges != 0, &edges, &used_bytes);
    if (result == CUDA_SUCCESS && (!rest_read(worker, request, used_bytes, fixed->nr_parameter_bytes, &rest) ||
                                   !may_be_staged(worker, &rest.sent, &staging))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph);
    }
    if (result == CUDA_SUCCESS) {
        const uint64_t root = fgw_graph_root(worker, FGV_HANDLE_GRAPH, fixed->graph);
        result = params_in(worker, &rest.sent, fixed->is_kernel != 0, rest.parameters, fixed->nr_parameter_bytes, root,
                           &params);
    }
    if (result == CUDA_SUCCESS && rest.sent.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        result = fgw_graph_memory_may_add(worker, fixed->graph, rest.sent.alloc.bytesize);
    }
    if (result == CUDA_SUCCESS) {
        result =
            fgw_staging_add(worker, graph, edges.nodes, edges.data, fixed->nr_nodes, &staging, &params.native, &node);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && rest.sent.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            result = fgw_lack_of(worker, rest.sent.alloc.bytesize);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_graph_number(worker, FGV_HANDLE_GRAPH_NODE, node, FGV_HANDLE_GRAPH, fixed->graph, &answer->node);
        if (result != CUDA_SUCCESS) {
            fgw_staging_destroy(worker, node); /* nobody could name it */
        }
    }
    if (result == CUDA_SUCCESS && rest.sent.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        answer->address = params.native.alloc.dptr;
        fgw_told_watch(worker, answer->address, rest.sent.alloc.bytesize);
        fgw_graph_memory_add(worker, fixed->graph, rest.sent.alloc.bytesize);
    }
    if (result == CUDA_SUCCESS && rest.sent.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        fgw_graph_memory_add_free(worker, fixed->graph);
    }
    if (result == CUDA_SUCCESS) {
        answer->root = fgw_graph_root(worker, FGV_HANDLE_GRAPH_NODE, answer->node);
    }
    if (result == CUDA_SUCCESS && rest.sent.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        result = tell_bodies(worker, &params.native.conditional, answer->node, answer->bodies);
    }
    fgw_edges_free(&edges);
    return result;
}

CUresult fgw_serve_graph_set_node(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_set_node *fixed = request->fixed;
    struct fgv_reply_graph_set_node *answer = reply;
    const struct fgw_staging staging = {.fill = fixed->fill, .drain = fixed->drain};
    struct rest_of_payload rest;
    struct node_params params;
    void *exec = NULL;
    void *node;
    if (!rest_read(worker, request, 0, fixed->nr_parameter_bytes, &rest) ||
        !may_be_staged(worker, &rest.sent, &staging)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_NODE, fixed->node, &node);
    if (result == CUDA_SUCCESS && fixed->exec != 0) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_EXEC, fixed->exec, &exec);
    }
    answer->root = fgw_graph_root(worker, FGV_HANDLE_GRAPH_NODE, fixed->node);
    if (result == CUDA_SUCCESS) {
        result = params_in(worker, &rest.sent, fixed->is_kernel != 0, rest.parameters, fixed->nr_parameter_bytes,
                           answer->root, &params);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (rest.sent.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || rest.sent.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_GRAPH_NODE, fixed->node);
    CUgraph graph = fgw_handle_above(worker, &handle).native;
    return fgw_staging_set(worker, exec, node, graph, &staging, &params.native);
}

CUresult fgw_serve_cuGraphNodeSetEnabled(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuGraphNodeSetEnabled *fixed = request->fixed;
    void *exec;
    void *node;
    (void)reply;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_EXEC, fixed->exec, &exec);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_NODE, fixed->node, &node);
    }
    return result == CUDA_SUCCESS ? fgw_staging_set_enabled(worker, exec, node, fixed->is_enabled) : result;
}

CUresult fgw_serve_cuGraphDestroyNode(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuGraphDestroyNode *fixed = request->fixed;
    void *node;
    (void)reply;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH_NODE, fixed->node, &node);
    if (result == CUDA_SUCCESS) {
        result = fgw_staging_destroy(worker, node);
    }
    if (result == CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_GRAPH_NODE, fixed->node);
    }
    return result;
}

CUresult fgw_serve_graph_condition(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_condition *fixed = request->fixed;
    struct fgv_reply_graph_condition *answer = reply;
    void *graph;
    CUcontext context;
    CUgraphConditionalHandle condition;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph);
    if (result == CUDA_SUCCESS) {
        result = find_context(worker, (const void *)(uintptr_t)fixed->context, &context);
    }
    if (result != CUDA_SUCCESS || !worker->driver.cuGraphConditionalHandleCreate) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    result = worker->driver.cuGraphConditionalHandleCreate(&condition, graph, context, fixed->value, fixed->flags);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    answer->condition = condition;
    const uint64_t number = condition_number(fgw_graph_root(worker, FGV_HANDLE_GRAPH, fixed->graph), condition);
    return fgw_worker_bind_under(worker, FGW_HANDLE_GRAPH_CONDITION, number, NULL, FGV_HANDLE_GRAPH, fixed->graph);
}
