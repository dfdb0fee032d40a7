/* Nodes' parameters on their way back to the guest, with numbers for handles and no pointers of the driver's. */
#include <string.h>

#include "calls/graph.h"
#include "calls/host_function.h"
#include "calls/staging.h"
#include "client/arena.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"

/* Whether the kernel of a library is behind this function: launches of it may show up in nodes as that. */
static bool is_function_of(const struct fgw_worker *worker, const struct fgw_handle *handle, const void *function)
{
    CUfunction derived;
    return worker->driver.cuKernelGetFunction &&
           worker->driver.cuKernelGetFunction(&derived, handle->native) == CUDA_SUCCESS && derived == function;
}

static struct fgw_handle find_code(struct fgw_worker *worker, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct fgw_handle found = {0};
    if (params->func) {
        found = fgw_handle_of_native(worker, FGV_HANDLE_FUNCTION, params->func);
    }
    if (found.number == 0 && params->kern) {
        found = fgw_handle_of_native(worker, FGV_HANDLE_KERNEL, params->kern);
    }
    if (found.number == 0 && params->func) {
        found = fgw_handle_of_native(worker, FGV_HANDLE_KERNEL, params->func);
    }
    struct fgw_handle kernel;
    for (uint32_t at = 0; found.number == 0 && fgw_handle_next(worker, FGV_HANDLE_KERNEL, &at, &kernel);) {
        found = is_function_of(worker, &kernel, params->func) ? kernel : found;
    }
    return found;
}

/* The driver has them as single values or as one buffer. */
static CUresult parameters_out(struct fgw_worker *worker, const struct fgw_handle *handle,
                               const CUDA_KERNEL_NODE_PARAMS *params, const struct fgw_kernel *kernel, uint8_t *to)
{
    const struct fgv_driver *driver = &worker->driver;
    for (void **extra = params->kernelParams ? NULL : params->extra; extra && *extra != CU_LAUNCH_PARAM_END;
         extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            memcpy(to, extra[1], kernel->parameter_bytes);
        }
    }
    for (uint32_t i = 0; params->kernelParams && i < kernel->nr_parameters; i++) {
        size_t offset;
        size_t bytes;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (handle->kind == FGV_HANDLE_KERNEL && driver->cuKernelGetParamInfo) {
            result = driver->cuKernelGetParamInfo(handle->native, i, &offset, &bytes);
        } else if (handle->kind == FGV_HANDLE_FUNCTION && driver->cuFuncGetParamInfo) {
            result = driver->cuFuncGetParamInfo(handle->native, i, &offset, &bytes);
        }
        if (result == CUDA_SUCCESS && offset + bytes > kernel->parameter_bytes) {
            result = CUDA_ERROR_NOT_SUPPORTED;
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        memcpy(to + offset, params->kernelParams[i], bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult kernel_out(struct fgw_worker *worker, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *to,
                           struct fgv_reply_graph_get_node *answer, uint8_t *parameters)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    struct fgw_kernel *kernel;
    if (!worker->driver.cuGraphKernelNodeGetParams_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuGraphKernelNodeGetParams_v2(node, &params);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgw_handle handle = find_code(worker, &params);
    result = handle.number != 0 ? fgw_kernel_layout(worker, &handle, &kernel) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = kernel->parameter_bytes > FGW_MAX_PARAMETER_BYTES
                 ? CUDA_ERROR_NOT_SUPPORTED
                 : parameters_out(worker, &handle, &params, kernel, parameters);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    answer->is_kernel = handle.kind == FGV_HANDLE_KERNEL;
    answer->nr_parameter_bytes = kernel->parameter_bytes;
    *to = params;
    to->func = (CUfunction)(uintptr_t)handle.number;
    to->kern = NULL;
    to->ctx = NULL;
    to->kernelParams = NULL;
    to->extra = NULL;
    return CUDA_SUCCESS;
}

static CUresult child_out(struct fgw_worker *worker, CUgraphNode node, uint64_t number, CUgraph *to)
{
    CUgraph graph;
    uint64_t child;
    if (!worker->driver.cuGraphChildGraphNodeGetGraph) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuGraphChildGraphNodeGetGraph(node, &graph);
    if (result == CUDA_SUCCESS) {
        result = fgw_graph_number(worker, FGV_HANDLE_GRAPH, graph, FGV_HANDLE_GRAPH_NODE, number, &child);
        *to = result == CUDA_SUCCESS ? (CUgraph)(uintptr_t)child : NULL;
    }
    return result;
}

static CUresult event_out(struct fgw_worker *worker, CUresult (*get)(CUgraphNode, CUevent *), CUgraphNode node,
                          CUevent *to)
{
    CUevent event;
    CUresult result = get ? get(node, &event) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint64_t number = fgw_handle_of_native(worker, FGV_HANDLE_EVENT, event).number;
    *to = (CUevent)(uintptr_t)number;
    return number != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* 0: it is none, or the program has destroyed it. */
static CUarray array_out(struct fgw_worker *worker, CUmemorytype type, CUarray native)
{
    return type == CU_MEMORYTYPE_ARRAY
               ? (CUarray)(uintptr_t)fgw_handle_of_native(worker, FGV_HANDLE_ARRAY, native).number
               : NULL;
}

static CUresult copy_out(struct fgw_worker *worker, CUgraphNode node, CUDA_MEMCPY3D *to)
{
    CUresult result = worker->driver.cuGraphMemcpyNodeGetParams ? worker->driver.cuGraphMemcpyNodeGetParams(node, to)
                                                                : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    to->srcDevice = fgw_told_as_told(worker, to->srcDevice);
    to->dstDevice = fgw_told_as_told(worker, to->dstDevice);
    to->srcArray = array_out(worker, to->srcMemoryType, to->srcArray);
    to->dstArray = array_out(worker, to->dstMemoryType, to->dstArray);
    return CUDA_SUCCESS;
}

static CUresult operations_out(struct fgw_worker *worker, CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *to,
                               struct fgv_reply_graph_get_node *answer, uint8_t *operations)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS made = {0};
    CUresult result = worker->driver.cuGraphBatchMemOpNodeGetParams
                          ? worker->driver.cuGraphBatchMemOpNodeGetParams(node, &made)
                          : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS || made.count > FGV_MAX_STREAM_OPERATIONS) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    answer->nr_parameter_bytes = made.count * (uint32_t)sizeof(*made.paramArray);
    if (made.count > 0) {
        memcpy(operations, made.paramArray, answer->nr_parameter_bytes);
    }
    *to = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = made.count, .flags = made.flags};
    return CUDA_SUCCESS;
}

static CUresult host_out(struct fgw_worker *worker, CUgraphNode node, CUDA_HOST_NODE_PARAMS *to)
{
    CUDA_HOST_NODE_PARAMS host;
    CUresult result = worker->driver.cuGraphHostNodeGetParams ? worker->driver.cuGraphHostNodeGetParams(node, &host)
                                                              : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS && fgw_host_node_kind(&host) != FGV_HOST_NODE_PROGRAM) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    to->userData = result == CUDA_SUCCESS ? host.userData : NULL;
    return result;
}

static CUresult allocation_out(struct fgw_worker *worker, CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *to)
{
    CUDA_MEM_ALLOC_NODE_PARAMS made;
    CUresult result = worker->driver.cuGraphMemAllocNodeGetParams
                          ? worker->driver.cuGraphMemAllocNodeGetParams(node, &made)
                          : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        *to = (CUDA_MEM_ALLOC_NODE_PARAMS){
            .poolProps = {.allocType = made.poolProps.allocType, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
            .bytesize = made.bytesize,
            .dptr = made.dptr};
    }
    return result;
}

static CUresult params_out(struct fgw_worker *worker, const struct fgw_handle *handle, CUgraphNodeType type,
                           CUgraphNodeParams *params, struct fgv_reply_graph_get_node *answer, uint8_t *parameters)
{
    CUgraphNode node = handle->native;
    CUDA_MEMSET_NODE_PARAMS set;
    CUresult result;
    params->type = type;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_out(worker, node, &params->kernel, answer, parameters);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        fgw_staging_numbers(worker, node, &answer->fill, &answer->drain);
        return copy_out(worker, node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        result = worker->driver.cuGraphMemsetNodeGetParams ? worker->driver.cuGraphMemsetNodeGetParams(node, &set)
                                                           : CUDA_ERROR_NOT_SUPPORTED;
        if (result == CUDA_SUCCESS) {
            set.dst = fgw_told_as_told(worker, set.dst);
            memcpy(&params->memset, &set, sizeof(set));
        }
        return result;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return operations_out(worker, node, &params->memOp, answer, parameters);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_out(worker, node, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_out(worker, node, handle->number, &params->graph.graph);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return allocation_out(worker, node, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return worker->driver.cuGraphMemFreeNodeGetParams
                   ? worker->driver.cuGraphMemFreeNodeGetParams(node, &params->free.dptr)
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_out(worker, worker->driver.cuGraphEventWaitNodeGetEvent, node, &params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_out(worker, worker->driver.cuGraphEventRecordNodeGetEvent, node, &params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult fgw_serve_graph_get_node(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_graph_get_node *fixed = request->fixed;
    struct fgv_reply_graph_get_node *answer = reply;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_GRAPH_NODE, fixed->node);
    uint8_t *chunk = fgw_arena_chunk(worker, fixed->chunk);
    CUgraphNodeType type;
    if (handle.number == 0 || !chunk ||
        worker->layout.chunk_bytes < sizeof(CUgraphNodeParams) + FGW_MAX_PARAMETER_BYTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->driver.cuGraphNodeGetType) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuGraphNodeGetType(handle.native, &type);
    if (result != CUDA_SUCCESS || (uint32_t)type != fixed->type) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = {0};
    answer->root = fgw_graph_root(worker, FGV_HANDLE_GRAPH_NODE, handle.number);
    result = params_out(worker, &handle, type, &params, answer, chunk + sizeof(params));
    memcpy(chunk, &params, sizeof(params));
    return result;
}
