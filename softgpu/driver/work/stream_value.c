/*
 * Operations on values in memory, in the order of a stream. A stream that waits looks again and again: at first often,
 * then a thousand times a second. It ends when the context does, or fails.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/capture.h"
#include "stream/queue.h"
#include "stream/stream.h"
#include "work/values.h"

#define MAX_OPERATIONS 256u
#define NAP_MIN_NS     2000
#define NAP_MAX_NS     1000000

struct operations {
    struct sgp_command command;
    struct CUctx_st *context;
    struct sgp_values *values;
};

static bool is_64_bit(CUstreamBatchMemOpType operation)
{
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_wait(CUstreamBatchMemOpType operation)
{
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

/* Of a wait or a write, with the lock: the memory may be unmapped while a stream waits for it. */
static bool is_there(const CUstreamBatchMemOpParams *one, uint64_t bytes)
{
    const uintptr_t address = one->waitValue.address; /* a write has it there, too */
    const CUmemAccess_flags access =
        is_wait(one->operation) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    return sgp_memory_find(address) && sgp_memory_range_ok(address, bytes, true, access);
}

static uint64_t load(const CUstreamBatchMemOpParams *one)
{
    if (is_64_bit(one->operation)) {
        return atomic_load((_Atomic uint64_t *)(uintptr_t)one->waitValue.address);
    }
    return atomic_load((_Atomic uint32_t *)(uintptr_t)one->waitValue.address);
}

static bool is_met(const CUstreamBatchMemOpParams *one)
{
    const bool is_wide = is_64_bit(one->operation);
    const uint64_t mask = is_wide ? UINT64_MAX : UINT32_MAX;
    const uint64_t wanted = one->waitValue.value64 & mask, value = load(one);

    switch (one->waitValue.flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return is_wide ? (int64_t)(value - wanted) >= 0 : (int32_t)((uint32_t)value - (uint32_t)wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return value & wanted;
    default:
        return ~(value | wanted) & mask;
    }
}

enum outcome { GOES_ON, IS_DONE, IS_GONE };

static enum outcome look(const struct CUctx_st *context, const CUstreamBatchMemOpParams *one, uint64_t bytes)
{
    enum outcome outcome = IS_GONE;

    sgp_lock();
    if (is_there(one, bytes)) {
        outcome = is_met(one) || context->is_ending || context->error ? IS_DONE : GOES_ON;
    }
    sgp_unlock();
    return outcome;
}

static CUresult wait_for(const struct CUctx_st *context, const CUstreamBatchMemOpParams *one, uint64_t bytes)
{
    struct timespec nap = {.tv_nsec = NAP_MIN_NS};
    enum outcome outcome;

    while ((outcome = look(context, one, bytes)) == GOES_ON) {
        nanosleep(&nap, NULL);
        nap.tv_nsec = nap.tv_nsec < NAP_MAX_NS / 2 ? nap.tv_nsec * 2 : NAP_MAX_NS;
    }
    return outcome == IS_DONE ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult write_value(const CUstreamBatchMemOpParams *one, uint64_t bytes)
{
    void *at = (void *)(uintptr_t)one->writeValue.address;
    bool is_ok;

    sgp_lock();
    is_ok = is_there(one, bytes);
    if (is_ok && bytes == 8) {
        atomic_store((_Atomic uint64_t *)at, one->writeValue.value64);
    } else if (is_ok) {
        atomic_store((_Atomic uint32_t *)at, (uint32_t)one->writeValue.value64);
    }
    sgp_unlock();
    return is_ok ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run(struct sgp_command *command)
{
    const struct operations *operations = (struct operations *)command;
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < operations->values->nr && !result; i++) {
        const CUstreamBatchMemOpParams *one = &operations->values->list[i];
        const uint64_t bytes = is_64_bit(one->operation) ? 8 : 4;

        if (one->operation == CU_STREAM_MEM_OP_BARRIER) {
            atomic_thread_fence(memory_order_seq_cst);
        } else if (is_wait(one->operation)) {
            result = wait_for(operations->context, one, bytes);
        } else {
            result = write_value(one, bytes);
        }
    }
    return result;
}

/* With the lock. */
static bool is_allowed(const CUstreamBatchMemOpParams *one)
{
    const uint64_t bytes = is_64_bit(one->operation) ? 8 : 4;

    switch (one->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        if (one->waitValue.flags > CU_STREAM_WAIT_VALUE_NOR) {
            return false;
        }
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        if (one->writeValue.flags != CU_STREAM_WRITE_VALUE_DEFAULT) {
            return false;
        }
        break;
    case CU_STREAM_MEM_OP_BARRIER:
        return one->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
    default:
        return false;
    }
    return one->waitValue.address % bytes == 0 && is_there(one, bytes);
}

static CUresult copy_list(const CUstreamBatchMemOpParams *list, uint32_t nr, struct sgp_values **made)
{
    *made = malloc(sizeof(**made) + nr * sizeof(*list));
    if (!*made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*made)->nr = nr;
    memcpy((*made)->list, list, nr * sizeof(*list));
    return CUDA_SUCCESS;
}

CUresult sgp_values_new(const CUstreamBatchMemOpParams *list, uint32_t nr, struct sgp_values **made)
{
    if (nr > MAX_OPERATIONS || (nr && !list)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < nr; i++) {
        if (!is_allowed(&list[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return copy_list(list, nr, made);
}

CUresult sgp_values_copy(const struct sgp_values *from, struct sgp_values **made)
{
    return copy_list(from->list, from->nr, made);
}

static void finish(struct sgp_command *command)
{
    free(((struct operations *)command)->values);
    free(command);
}

CUresult sgp_values_submit(struct CUstream_st *stream, const struct sgp_values *values)
{
    struct operations *operations = calloc(1, sizeof(*operations));
    CUresult result = operations ? sgp_values_copy(values, &operations->values) : CUDA_ERROR_OUT_OF_MEMORY;

    if (result) {
        free(operations);
        return result;
    }
    operations->command = (struct sgp_command){.run = run, .finish = finish, .uses_no_memory = true};
    operations->context = stream->object.context; /* the queue holds the stream, and that the context */
    return sgp_queue_submit(stream, &operations->command, NULL);
}

static CUresult submit(CUstream handle, const CUstreamBatchMemOpParams *list, uint32_t nr)
{
    struct CUstream_st *stream;
    struct sgp_values *values;
    CUresult result = sgp_enter_stream(handle, &stream);

    if (result) {
        return result;
    }
    result = sgp_values_new(list, nr, &values);
    if (result || stream->capture) {
        return sgp_leave(result ? result : stream->capture->sink->values(stream, values));
    }
    result = sgp_values_submit(stream, values);
    free(values);
    return sgp_leave(result);
}

static CUresult submit_one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
                           unsigned int flags)
{
    CUstreamBatchMemOpParams one;

    memset(&one, 0, sizeof(one));
    one.waitValue.operation = operation; /* writes have the same members */
    one.waitValue.address = address;
    one.waitValue.value64 = value;
    one.waitValue.flags = flags;
    return submit(stream, &one, 1);
}

SGP_EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                                          unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : submit(stream, paramArray, count);
}

SGP_EXPORT CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return cuStreamWaitValue32_v2(stream, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return cuStreamWaitValue64_v2(stream, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    return cuStreamWriteValue32_v2(stream, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    return cuStreamWriteValue64_v2(stream, addr, value, flags);
}

SGP_EXPORT CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                                       unsigned int flags)
{
    return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}
