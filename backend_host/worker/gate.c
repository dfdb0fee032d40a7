/*
 * Streams that are held up. cuStreamWaitValue holds a stream until somebody writes a value, for ever if nobody does.
 * What is queued behind it costs the GPU nothing meanwhile: it is not charged, and keeps no grant.
 *
 * A mark with no submission before it tells: while it is the first that is open, all that ran in the stream has ended
 * and nothing behind it has begun. One is set behind each wait for a value. While any of those is open, streams may be
 * held up by each other as well (by events, by the default stream), so one is set before each submission, and behind
 * each wait for an event, until the last has passed.
 *
 * Wrong when: what was held up begins to run while another vGPU has its turn. It is charged from then on, so the
 * account is right, but it ran out of turn; a client can have at most FGV_MAX_UNFINISHED submissions do that.
 */
#include <string.h>

#include "worker.h"

#define FGV_MAX_OPERATIONS 256u

static bool is_held_up(const struct fgv_stream *stream)
{
    return stream->first_mark && stream->first_mark->nr_submissions == 0;
}

static uint32_t nr_in(const struct fgv_stream *stream)
{
    uint32_t nr = stream->nr_unmarked;
    for (const struct fgv_mark *mark = stream->first_mark; mark; mark = mark->next) {
        nr += mark->nr_submissions;
    }
    return nr;
}

uint32_t fgv_nr_running(const struct fgv_worker *worker)
{
    uint32_t nr = worker->nr_unfinished;
    for (const struct fgv_stream *stream = worker->nr_gates ? worker->busy : NULL; stream; stream = stream->next_busy) {
        nr -= is_held_up(stream) ? nr_in(stream) : 0;
    }
    return nr;
}

static bool is_wait_for_value(uint16_t call)
{
    return call == FGV_CALL_cuStreamWaitValue32_v2 || call == FGV_CALL_cuStreamWaitValue64_v2 ||
           call == FGV_CALL_cuStreamBatchMemOp_v2;
}

static bool may_hold_up(const struct fgv_worker *worker, uint16_t call)
{
    return is_wait_for_value(call) || (worker->nr_gates != 0 && call == FGV_CALL_cuStreamWaitEvent);
}

void fgv_gate_prepare(struct fgv_worker *worker, struct fgv_stream *stream, uint16_t call)
{
    if (is_wait_for_value(call)) {
        fgv_sync_mark_all(worker); /* what other streams have by now is not behind it */
    } else if (may_hold_up(worker, call)) {
        fgv_stream_mark(worker, stream);
    }
}

void fgv_gate_close(struct fgv_worker *worker, struct fgv_stream *stream, const struct fgv_request *request)
{
    if (!may_hold_up(worker, request->header->call)) {
        return;
    }
    if (fgv_stream_mark(worker, stream) && stream->last_mark && stream->marked_seq == worker->seq &&
        is_wait_for_value(request->header->call)) {
        stream->last_mark->is_gate = true;
        worker->nr_gates++;
    }
}

void fgv_gate_submit(struct fgv_worker *worker, struct fgv_stream *stream)
{
    if (worker->nr_gates == 0) {
        return;
    }
    if (stream->nr_unmarked == 0) {
        fgv_stream_touch(worker, stream); /* a mark here, though nothing is before it */
    }
    fgv_stream_mark(worker, stream);
}

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

CUresult fgv_serve_cuStreamBatchMemOp_v2(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_cuStreamBatchMemOp_v2 *fixed = request->fixed;
    (void)reply;
    CUstreamBatchMemOpParams operations[FGV_MAX_OPERATIONS];
    void *stream;
    if (fixed->count == 0 || fixed->count > FGV_MAX_OPERATIONS ||
        request->payload_bytes != fixed->count * sizeof(*operations)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(operations, request->payload, request->payload_bytes);
    for (uint32_t i = 0; i < fixed->count; i++) {
        if (!is_operation(&operations[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (!worker->driver.cuStreamBatchMemOp_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgv_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    return result == CUDA_SUCCESS ? worker->driver.cuStreamBatchMemOp_v2(stream, fixed->count, operations, 0) : result;
}
