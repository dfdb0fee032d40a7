/* Nodes' parameters on their way back. What the program reads through pointers is kept here (graph_kept.c). */
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/chunks.h"
#include "call/current.h"
#include "code/function.h"
#include "context/host_function.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph_copy.h"
#include "graphs/graph_kept.h"
#include "region/client.h"

/* Values and pointers to them, where the program may read them for as long as the node is. */
static CUresult kernel_keep(CUDA_KERNEL_NODE_PARAMS *params, uint64_t node,
                            const struct fgv_reply_graph_get_node *reply, const uint8_t *packed)
{
    const uint64_t handle = fgv_handle_number(params->func);
    struct fgv_function *function =
        fgv_handle_object(reply->is_kernel != 0 ? FGV_HANDLE_KERNEL : FGV_HANDLE_FUNCTION, handle);
    CUresult result = !function ? CUDA_ERROR_INVALID_HANDLE : fgv_function_know(function);
    if (result != CUDA_SUCCESS || function->parameter_bytes != reply->nr_parameter_bytes) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_UNKNOWN;
    }
    const size_t pointers_bytes = (function->nr_parameters + 1) * sizeof(void *);
    uint8_t *block = fgv_kept_block(node, reply->root, pointers_bytes + function->parameter_bytes);
    if (!block) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void **pointers = (void **)(void *)block;
    memcpy(block + pointers_bytes, packed, function->parameter_bytes);
    for (uint32_t i = 0; i < function->nr_parameters; i++) {
        pointers[i] = block + pointers_bytes + function->parameters[i].offset_bytes;
    }
    pointers[function->nr_parameters] = NULL;
    params->kernelParams = pointers;
    params->func = reply->is_kernel != 0 ? NULL : (CUfunction)(uintptr_t)handle;
    params->kern = (CUkernel)(uintptr_t)(reply->is_kernel != 0 ? handle : function->kernel);
    params->ctx = fgv_context_public(fgv_thread.current);
    return CUDA_SUCCESS;
}

static CUresult operations_keep(CUDA_BATCH_MEM_OP_NODE_PARAMS *params, uint64_t node,
                                const struct fgv_reply_graph_get_node *reply, const uint8_t *packed)
{
    const uint32_t bytes = reply->nr_parameter_bytes;
    if (params->count > FGV_MAX_STREAM_OPERATIONS || bytes != params->count * sizeof(*params->paramArray)) {
        return CUDA_ERROR_UNKNOWN;
    }
    params->paramArray = fgv_kept_block(node, reply->root, bytes);
    if (!params->paramArray) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(params->paramArray, packed, bytes);
    params->ctx = fgv_context_public(fgv_thread.current);
    return CUDA_SUCCESS;
}

static CUresult get_ask(CUgraphNode node, CUgraphNodeType type, uint32_t chunk, struct fgv_reply_graph_get_node *reply)
{
    struct fgv_call call;
    struct fgv_request_graph_get_node *request = fgv_call_begin(&call, FGV_CALL_graph_get_node, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_get_node){.node = fgv_handle_number(node), .chunk = chunk, .type = type};
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

static CUresult node_get(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams *params)
{
    struct fgv_reply_graph_get_node reply;
    uint32_t chunk;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_chunk_take(&chunk);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = get_ask(node, type, chunk, &reply);
    if (result == CUDA_SUCCESS) {
        memcpy(params, fgv_chunk_memory(chunk), sizeof(*params));
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
            result = kernel_keep(&params->kernel, fgv_handle_number(node), &reply,
                                 fgv_chunk_memory(chunk) + sizeof(*params));
        } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
            const struct fgv_staging staging = {.fill = reply.fill, .drain = reply.drain};
            fgv_graph_copy_restore(&params->memcpy.copyParams, &staging);
        } else if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
            result = operations_keep(&params->memOp, fgv_handle_number(node), &reply,
                                     fgv_chunk_memory(chunk) + sizeof(*params));
        } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
            fgv_kept_block(fgv_handle_number(params->graph.graph), reply.root, 0);
        } else if (type == CU_GRAPH_NODE_TYPE_HOST &&
                   !fgv_host_function_find(fgv_handle_number(params->host.userData), &params->host)) {
            result = CUDA_ERROR_UNKNOWN;
        }
    }
    fgv_chunk_give(chunk);
    return result;
}

static const struct fgv_graph_ops graph_ops = {.node_get = node_get};

__attribute__((constructor)) static void lend_graph_ops(void)
{
    fgv_graph_set_ops(&graph_ops);
}
