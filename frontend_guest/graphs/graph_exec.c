/* Executable graphs: instantiated, launched, updated as wholes. Updates of single nodes are graph_node.c. */
#include "call/call.h"
#include "call/chunks.h"
#include "code/blocking.h"
#include "context/capture_rules.h"
#include "context/host_function.h"
#include "context/stream.h"
#include "copy/staging.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "graphs/graph_kept.h"
#include "graphs/graph_update.h"

/* The object of one whose launches are waited for, because they may be refused. */
static char doubtful;

static CUresult instantiate_ask(uint64_t exec, CUgraph graph, uint64_t flags, uint64_t stream,
                                struct fgv_reply_graph_instantiate *reply)
{
    struct fgv_call call;
    struct fgv_request_graph_instantiate *request =
        fgv_call_begin(&call, FGV_CALL_graph_instantiate, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_instantiate){
        .exec = exec, .graph = fgv_handle_number(graph), .flags = flags, .stream = stream};
    CUresult result = fgv_call_wait(&call, reply, sizeof(*reply));
    return result == CUDA_SUCCESS ? (CUresult)reply->error : result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    if (!phGraphExec || !hGraph || !instantiateParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t stream = fgv_stream_wire(instantiateParams->hUploadStream);
    uint64_t exec;
    if (stream == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = fgv_handle_new(FGV_HANDLE_GRAPH_EXEC, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_reply_graph_instantiate reply = {.result = CUDA_GRAPH_INSTANTIATE_ERROR};
    result = instantiate_ask(exec, hGraph, instantiateParams->flags, stream, &reply);
    instantiateParams->result_out = (CUgraphInstantiateResult)reply.result;
    instantiateParams->hErrNode_out = (CUgraphNode)(uintptr_t)reply.node;
    if (result != CUDA_SUCCESS) {
        fgv_handle_drop(FGV_HANDLE_GRAPH_EXEC, exec);
        return result;
    }
    if (reply.number != exec) {
        result = fgv_handle_rename(FGV_HANDLE_GRAPH_EXEC, exec, reply.number);
        if (result != CUDA_SUCCESS) {
            return result; /* it stays until the program ends */
        }
        exec = reply.number;
    }
    fgv_user_objects_copy(fgv_handle_number(hGraph), exec);
    if (reply.is_doubtful != 0) {
        fgv_handle_set_object(FGV_HANDLE_GRAPH_EXEC, exec, &doubtful);
    }
    *phGraphExec = (CUgraphExec)(uintptr_t)exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags};
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return cuGraphInstantiateWithParams(phGraphExec, hGraph, &params);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                               size_t bufferSize)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    CUresult result = cuGraphInstantiateWithParams(phGraphExec, hGraph, &params);
    if (phErrorNode) {
        *phErrorNode = params.hErrNode_out;
    }
    if (logBuffer && bufferSize > 0) {
        logBuffer[0] = '\0';
    }
    return result;
}

/* A launch that was captured is a child graph of the one that the stream captures, which has its functions then, too.
 */
static CUresult hand_on(uint64_t exec, uint64_t stream)
{
    struct fgv_reply_capture_info capture;
    CUresult result = fgv_capture_ask(stream, FGV_NO_CHUNK, &capture);
    if (result == CUDA_SUCCESS && capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        fgv_user_objects_copy(exec, fgv_kept_root(capture.graph));
    }
    return result;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    const struct fgv_handle_entry *entry = fgv_handle_entry(FGV_HANDLE_GRAPH_EXEC, fgv_handle_number(hGraphExec));
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS || !entry) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t stream = fgv_stream_wire(hStream);
    if (stream == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct fgv_call call;
    struct fgv_request_cuGraphLaunch *request = fgv_call_begin(&call, FGV_CALL_cuGraphLaunch, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuGraphLaunch){.hGraphExec = fgv_handle_number(hGraphExec), .hStream = stream};
    result = entry->object == &doubtful ? fgv_call_wait(&call, NULL, 0) : fgv_call_post(&call);
    if (result != CUDA_SUCCESS || fgv_capture_is_active(stream)) {
        return result == CUDA_SUCCESS ? hand_on(fgv_handle_number(hGraphExec), stream) : result;
    }
    const bool waits =
        fgv_staging_is_used() && fgv_host_function_is_owned(fgv_handle_number(hGraphExec), fgv_staging_runs);
    return waits ? cuStreamSynchronize(hStream) : fgv_launch_settle(result, hStream);
}

/* A destructor of the program's may free what a launch still uses. Beside a capture nobody may wait: then they are
 * never called, and the number does not come back. */
void fgv_after_cuGraphExecDestroy(CUresult result, CUgraphExec hGraphExec)
{
    (void)result;
    fgv_update_forget_exec(fgv_handle_number(hGraphExec));
    if (!fgv_user_objects_has(fgv_handle_number(hGraphExec)) ||
        atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0) {
        return;
    }
    cuCtxSynchronize();
    fgv_user_objects_drop(fgv_handle_number(hGraphExec));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    if (!resultInfo) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_reply_graph_update reply;
    struct fgv_request_graph_update *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_graph_update, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request =
        (struct fgv_request_graph_update){.exec = fgv_handle_number(hGraphExec), .graph = fgv_handle_number(hGraph)};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    fgv_update_forget_exec(fgv_handle_number(hGraphExec));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *resultInfo = (CUgraphExecUpdateResultInfo){.result = (CUgraphExecUpdateResult)reply.result,
                                                .errorNode = (CUgraphNode)(uintptr_t)reply.node,
                                                .errorFromNode = (CUgraphNode)(uintptr_t)reply.from_node};
    if (reply.error == CUDA_SUCCESS) {
        fgv_user_objects_copy(fgv_handle_number(hGraph), fgv_handle_number(hGraphExec));
    }
    return (CUresult)reply.error;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out) {
        *hErrorNode_out = info.errorNode;
    }
    if (updateResult_out) {
        *updateResult_out = info.result;
    }
    return result;
}
