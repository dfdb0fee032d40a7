/*
 * Nodes by their kinds: parameters in, parameters out, as CUgraphNodeParams (cuda_api/common/graph_calls makes the
 * older calls of that). Semaphores are not served.
 */
#include <stdlib.h>
#include <string.h>

#include "code/library.h"
#include "cuda_api/copy_calls.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/condition.h"
#include "graphs/graph.h"
#include "graphs/graph_memory.h"
#include "memory/array.h"
#include "memory/memory_map.h"

/* ---- parameters to work ---- */

static CUresult kernel_of_params(struct sgp_work *work, struct CUctx_st *context, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct sgp_launch launch = {
        .handle = params->func ? params->func : (CUfunction)params->kern,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .dynamic_shared_bytes = params->sharedMemBytes,
    };
    CUresult result = sgp_launch_resolve(context, &launch);

    return result ? result : sgp_work_kernel(work, context, &launch, params->kernelParams, params->extra);
}

static CUresult box_of_params(struct sgp_box *box, const CUDA_MEMCPY3D *params)
{
    const struct fgv_copy_side to = fgv_copy_destination(params), from = fgv_copy_source(params);
    const struct fgv_copy_size size = {
        .width_bytes = params->WidthInBytes, .height = params->Height, .depth = params->Depth};
    CUresult result = sgp_box_of(box, &to, &from, &size);

    return result ? result : sgp_box_check(box);
}

static CUresult child_of_params(struct sgp_work *work, const CUDA_CHILD_GRAPH_NODE_PARAMS *params)
{
    if (!sgp_object_is(params->graph, SGP_GRAPH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (params->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return sgp_graph_clone(params->graph, &work->child);
}

static CUresult event_of_params(struct sgp_work *work, CUevent event)
{
    if (!sgp_object_is(event, SGP_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    work->event = event;
    sgp_object_keep(event);
    return CUDA_SUCCESS;
}

CUresult sgp_work_of_params(struct sgp_work *work, struct CUctx_st *context, const CUgraphNodeParams *params)
{
    CUresult result;

    *work = (struct sgp_work){.type = params->type};
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_of_params(work, context, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        result = box_of_params(&work->box, &params->memcpy.copyParams);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&work->set, &params->memset, sizeof(work->set));
        result = sgp_set_check(&work->set);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        result = params->memOp.flags ? CUDA_ERROR_INVALID_VALUE
                                     : sgp_values_new(params->memOp.paramArray, params->memOp.count, &work->values);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        work->host = params->host;
        return params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_of_params(work, &params->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_of_params(work, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_of_params(work, params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!result) {
        work->context = context;
        sgp_object_keep(context);
    }
    return result;
}

/* ---- work to parameters ---- */

static CUmemorytype memory_type_of(uintptr_t address, bool is_device)
{
    return is_device || sgp_memory_is_device_address(address) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

/* The place in an array that is at this address. */
static void place_in_array(const struct CUarray_st *array, uintptr_t address, size_t *x_bytes, size_t *y, size_t *z)
{
    const uint64_t offset = address - (uintptr_t)array->base;
    const uint64_t rows = array->slice_bytes ? offset % array->slice_bytes : offset;

    *z = array->slice_bytes ? offset / array->slice_bytes : 0;
    *y = array->pitch_bytes ? rows / array->pitch_bytes : 0;
    *x_bytes = array->pitch_bytes ? rows % array->pitch_bytes : rows;
}

static void params_of_box(CUDA_MEMCPY3D *params, const struct sgp_box *box)
{
    *params = (CUDA_MEMCPY3D){.WidthInBytes = box->width, .Height = box->height, .Depth = box->depth};
    if (sgp_object_is(box->source_array, SGP_ARRAY)) {
        params->srcMemoryType = CU_MEMORYTYPE_ARRAY;
        params->srcArray = box->source_array;
        place_in_array(box->source_array, box->source, &params->srcXInBytes, &params->srcY, &params->srcZ);
    } else {
        params->srcMemoryType = memory_type_of(box->source, box->source_is_device);
        params->srcPitch = box->source_pitch;
        params->srcHeight = box->source_pitch ? box->source_slice / box->source_pitch : 0;
    }
    if (sgp_object_is(box->destination_array, SGP_ARRAY)) {
        params->dstMemoryType = CU_MEMORYTYPE_ARRAY;
        params->dstArray = box->destination_array;
        place_in_array(box->destination_array, box->destination, &params->dstXInBytes, &params->dstY, &params->dstZ);
    } else {
        params->dstMemoryType = memory_type_of(box->destination, box->destination_is_device);
        params->dstPitch = box->destination_pitch;
        params->dstHeight = box->destination_pitch ? box->destination_slice / box->destination_pitch : 0;
    }
    if (params->srcMemoryType == CU_MEMORYTYPE_DEVICE) {
        params->srcDevice = box->source;
    } else if (params->srcMemoryType == CU_MEMORYTYPE_HOST) {
        params->srcHost = (const void *)box->source;
    }
    if (params->dstMemoryType == CU_MEMORYTYPE_DEVICE) {
        params->dstDevice = box->destination;
    } else if (params->dstMemoryType == CU_MEMORYTYPE_HOST) {
        params->dstHost = (void *)box->destination;
    }
}

/* The library's kernel that a launch is one of; NULL for a module of the program's own. */
static CUkernel kernel_of(const struct sgp_launch *launch)
{
    const struct CUlib_st *library = launch->module->library;

    for (uint32_t i = 0; sgp_object_is(library, SGP_LIBRARY) && i < library->image->module->nr_kernels; i++) {
        if (library->kernels[i].kernel == launch->kernel) {
            return &library->kernels[i];
        }
    }
    return NULL;
}

static void params_of_kernel(CUDA_KERNEL_NODE_PARAMS *params, const struct sgp_work *work)
{
    const struct sgp_launch *launch = &work->kernel.launch;
    bool is_kernel = sgp_object_is(launch->handle, SGP_KERNEL);

    *params = (CUDA_KERNEL_NODE_PARAMS){
        .func = is_kernel ? NULL : launch->handle,
        .gridDimX = launch->grid[0],
        .gridDimY = launch->grid[1],
        .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0],
        .blockDimY = launch->block[1],
        .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->dynamic_shared_bytes,
        .kernelParams = work->kernel.pointers,
        .kern = kernel_of(launch),
        .ctx = work->context,
    };
}

static CUresult node_get(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams *params)
{
    const struct sgp_work *work;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!sgp_object_is(node, SGP_NODE) || node->work.type != type) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    work = &node->work;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        params_of_kernel(&params->kernel, work);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        params_of_box(&params->memcpy.copyParams, &work->box);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&params->memset, &work->set, sizeof(work->set));
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        params->memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
            .ctx = work->context, .count = work->values->nr, .paramArray = work->values->list};
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        params->host = work->host;
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        params->graph.graph = work->child;
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        params->eventWait.event = work->event;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        params->alloc = *sgp_graph_memory_params(work->memory);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        params->free.dptr = sgp_graph_memory_params(work->memory)->dptr;
        break;
    default:
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    return sgp_leave(CUDA_SUCCESS);
}

static const struct fgv_graph_ops graph_ops = {.node_get = node_get};

__attribute__((constructor)) static void lend_graph_ops(void)
{
    fgv_graph_set_ops(&graph_ops);
}

/* ---- add and set ---- */

SGP_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                      CUgraphNodeParams *nodeParams)
{
    struct CUctx_st *context;
    struct sgp_work work;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!phGraphNode || !nodeParams || !sgp_object_is(hGraph, SGP_GRAPH) || (numDependencies && !dependencies)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_edges_are_plain(dependencyData, numDependencies)) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    for (size_t i = 0; i < numDependencies; i++) {
        if (!sgp_object_is(dependencies[i], SGP_NODE)) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    result = sgp_is_of_memory(nodeParams->type) ? sgp_work_of_memory(&work, context, hGraph, nodeParams)
             : nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL
                 ? sgp_work_of_condition(&work, context, sgp_graph_root(hGraph), &nodeParams->conditional)
                 : sgp_work_of_params(&work, context, nodeParams);
    if (result) {
        return sgp_leave(result);
    }
    result = sgp_node_add(hGraph, dependencies, numDependencies, &work, phGraphNode);
    if (result) {
        sgp_work_drop(&work);
    } else if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        fgv_user_objects_copy((uintptr_t)nodeParams->graph.graph, (uintptr_t)hGraph);
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

SGP_EXPORT CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    struct CUctx_st *context;
    struct sgp_work work;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!nodeParams || !sgp_object_is(hNode, SGP_NODE) || hNode->work.type != nodeParams->type ||
        nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_work_of_params(&work, context, nodeParams);
    if (result) {
        return sgp_leave(result);
    }
    sgp_work_drop(&hNode->work);
    hNode->work = work;
    return sgp_leave(CUDA_SUCCESS);
}

/* ---- attributes of kernel nodes ---- */

static CUresult enter_kernel_node(CUgraphNode node)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    return sgp_object_is(node, SGP_NODE) && node->work.type == CU_GRAPH_NODE_TYPE_KERNEL
               ? CUDA_SUCCESS
               : sgp_leave(CUDA_ERROR_INVALID_VALUE);
}

SGP_EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                  CUkernelNodeAttrValue *value_out)
{
    CUresult result = sgp_with_argument(enter_kernel_node(hNode), value_out);

    if (result) {
        return result;
    }
    memset(value_out, 0, sizeof(*value_out));
    switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        value_out->cooperative = hNode->work.kernel.launch.is_cooperative;
        return sgp_leave(CUDA_SUCCESS);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value_out->priority = hNode->work.kernel.priority;
        return sgp_leave(CUDA_SUCCESS);
    default:
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
}

SGP_EXPORT CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                  const CUkernelNodeAttrValue *value)
{
    CUresult result = sgp_with_argument(enter_kernel_node(hNode), value);

    if (result) {
        return result;
    }
    switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        hNode->work.kernel.launch.is_cooperative = value->cooperative != 0;
        return sgp_leave(CUDA_SUCCESS);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: /* kept, as a stream's is: kernels of this device run one at a time */
        hNode->work.kernel.priority = value->priority;
        return sgp_leave(CUDA_SUCCESS);
    default:
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
}

SGP_EXPORT CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    CUresult result = enter_kernel_node(src);

    if (result) {
        return result;
    }
    if (!sgp_object_is(dst, SGP_NODE) || dst->work.type != CU_GRAPH_NODE_TYPE_KERNEL) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    dst->work.kernel.launch.is_cooperative = src->work.kernel.launch.is_cooperative;
    dst->work.kernel.priority = src->work.kernel.priority;
    return sgp_leave(CUDA_SUCCESS);
}

/* ---- conditions ---- */

#define ASSIGN_DEFAULT 1u /* CU_GRAPH_COND_ASSIGN_DEFAULT */

/* Of all that the graph is in: bodies have the handles of the whole. */
SGP_EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                                   unsigned int defaultLaunchValue, unsigned int flags)
{
    struct CUctx_st *context;
    struct sgp_condition *condition;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!pHandle_out || !sgp_object_is(hGraph, SGP_GRAPH) || flags > ASSIGN_DEFAULT ||
        (ctx && !sgp_object_is(ctx, SGP_CONTEXT))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_condition_new(ctx ? ctx : context, sgp_graph_root(hGraph), defaultLaunchValue, flags, &condition);
    if (!result) {
        *pHandle_out = sgp_condition_handle(condition);
    }
    return sgp_leave(result);
}
