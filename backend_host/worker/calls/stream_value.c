/* Batches of waits for values and of writes of values in a stream, or in a node of a graph. What a wait holds up is
 * gate.c's affair. */
#include <string.h>

#include "calls/span.h"
#include "calls/stream.h"
#include "client/service.h"
#include "client/state.h"

static bool is_operation(const CUstreamBatchMemOpParams *one)
{
    switch (one->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return one->waitValue.flags <= CU_STREAM_WAIT_VALUE_NOR;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return one->writeValue.flags == CU_STREAM_WRITE_VALUE_DEFAULT;
    case CU_STREAM_MEM_OP_BARRIER:
        return one->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
    default:
        return false;
    }
}

bool fgw_operations_are_known(const CUstreamBatchMemOpParams *operations, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++) {
        if (!is_operation(&operations[i])) {
            return false;
        }
    }
    return true;
}

void fgw_operations_lead(struct fgw_worker *worker, CUstreamBatchMemOpParams *operations, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++) {
        CUstreamBatchMemOpParams *one = &operations[i];
        if (one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
            one->waitValue.address = fgw_worker_address(worker, one->waitValue.address);
        } else if (one->operation != CU_STREAM_MEM_OP_BARRIER) {
            one->writeValue.address = fgw_worker_address(worker, one->writeValue.address);
        }
    }
}

static bool has_operation_out(struct fgw_worker *worker, const struct fgw_request *request)
{
    bool is_out = false;
    CUstreamBatchMemOpParams one;
    for (uint32_t at = 0; !is_out && at + sizeof(one) <= request->payload_bytes; at += sizeof(one)) {
        memcpy(&one, request->payload + at, sizeof(one));
        is_out = (one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
                     ? fgw_span_is_out(worker, one.waitValue.address)
                     : fgw_span_is_out(worker, one.writeValue.address);
    }
    return is_out;
}

bool fgw_value_is_out(struct fgw_worker *worker, const struct fgw_request *request)
{
    switch (request->header->call) {
    case FGV_CALL_cuStreamWaitValue32_v2:
        return fgw_span_is_out(worker, ((const struct fgv_request_cuStreamWaitValue32_v2 *)request->fixed)->addr);
    case FGV_CALL_cuStreamWaitValue64_v2:
        return fgw_span_is_out(worker, ((const struct fgv_request_cuStreamWaitValue64_v2 *)request->fixed)->addr);
    case FGV_CALL_cuStreamWriteValue32_v2:
        return fgw_span_is_out(worker, ((const struct fgv_request_cuStreamWriteValue32_v2 *)request->fixed)->addr);
    case FGV_CALL_cuStreamWriteValue64_v2:
        return fgw_span_is_out(worker, ((const struct fgv_request_cuStreamWriteValue64_v2 *)request->fixed)->addr);
    case FGV_CALL_cuStreamBatchMemOp_v2:
        return has_operation_out(worker, request);
    default:
        return false;
    }
}

CUresult fgw_serve_cuStreamBatchMemOp_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuStreamBatchMemOp_v2 *fixed = request->fixed;
    (void)reply;
    CUstreamBatchMemOpParams operations[FGV_MAX_STREAM_OPERATIONS];
    void *stream;
    if (fixed->count > FGV_MAX_STREAM_OPERATIONS || request->payload_bytes != fixed->count * sizeof(*operations)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(operations, request->payload, request->payload_bytes);
    if (!fgw_operations_are_known(operations, fixed->count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgw_operations_lead(worker, operations, fixed->count);
    if (!worker->driver.cuStreamBatchMemOp_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    return result == CUDA_SUCCESS ? worker->driver.cuStreamBatchMemOp_v2(stream, fixed->count, operations, 0) : result;
}
