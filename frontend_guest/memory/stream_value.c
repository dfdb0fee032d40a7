/* Operations on values in the order of a stream: the first versions, and those in batches. The others are generated. */
#include <string.h>

#include "call/call.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "memory/memory.h"

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return cuStreamWriteValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return cuStreamWriteValue64_v2(stream, addr, value, flags);
}

/* Bytes of the value that an operation waits for or writes; 0: it has none. */
static uint32_t value_bytes(CUstreamBatchMemOpType operation)
{
    switch (operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return 4;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return 8;
    default:
        return 0;
    }
}

/* Whether the device may refuse it: it is none that has a value, or of memory that is not known. */
static bool is_doubtful(const CUstreamBatchMemOpParams *one)
{
    const uint32_t bytes = value_bytes(one->operation);
    return bytes == 0 || !fgv_memory_has(one->waitValue.address, bytes, 1, 1, 0);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                               unsigned int flags)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t wire = fgv_stream_wire(stream);
    if (wire == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (count > FGV_MAX_STREAM_OPERATIONS || (count > 0 && !paramArray) || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Whether there may be none is the device's to say: drivers differ. */
    const uint32_t bytes = count * (uint32_t)sizeof(*paramArray);
    struct fgv_call call;
    struct fgv_request_cuStreamBatchMemOp_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuStreamBatchMemOp_v2, sizeof(*request), bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuStreamBatchMemOp_v2){.stream = wire, .count = count};
    if (count > 0) {
        memcpy(call.payload, paramArray, bytes);
    }
    bool waits = false;
    for (unsigned int i = 0; i < count; i++) {
        waits |= is_doubtful(&paramArray[i]);
    }
    return waits ? fgv_call_wait(&call, NULL, 0) : fgv_call_post(&call);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                            unsigned int flags)
{
    return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}
