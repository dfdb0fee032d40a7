/*
 * Streams that are held up. cuStreamWaitValue holds a stream until somebody writes a value, for ever if nobody does.
 * What is queued behind it costs the GPU nothing meanwhile: it is not charged, and keeps no grant.
 *
 * A mark with no submission before it tells: while it is the first that is open, all that ran in the stream has ended
 * and nothing behind it has begun. One is set behind each wait for a value. While any of those is open, streams may be
 * held up by each other as well (by events, by the default stream), so one is set before each submission, and behind
 * everything else that has a place in a stream, until the last has passed.
 *
 * A driver's queue that is full blocks who puts more into it, and here nothing may empty it. So while a stream waits,
 * less is queued, and what is too much stays in the backlog, for which no grant is asked.
 *
 * Wrong when: the value is to be written by work that is queued behind more than FGV_MAX_HELD_UP others: a driver takes
 * some more. And when what was held up begins to run while another vGPU has its turn: it is charged from then on, so
 * the account is right, but it ran out of turn.
 */
#include <string.h>

#include "worker.h"

static bool is_held_up(const struct fgv_stream *stream)
{
    return stream->first_mark && stream->first_mark->nr_submissions == 0;
}

/* Without what a host function holds, and what is in no turn: these are not counted among the unfinished. */
uint32_t fgv_nr_in_stream(const struct fgv_stream *stream)
{
    uint32_t nr = stream->held_by == 0 && !stream->is_beside ? stream->nr_unmarked : 0;
    for (const struct fgv_mark *mark = stream->first_mark; mark; mark = mark->next) {
        nr += mark->held_by == 0 && !mark->is_beside ? mark->nr_submissions : 0;
    }
    return nr;
}

uint32_t fgv_nr_running(const struct fgv_worker *worker)
{
    uint32_t nr = worker->nr_unfinished;
    for (const struct fgv_stream *stream = worker->nr_gates ? worker->busy : NULL; stream; stream = stream->next_busy) {
        nr -= is_held_up(stream) ? fgv_nr_in_stream(stream) : 0;
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
    return is_wait_for_value(call) || worker->nr_gates != 0;
}

bool fgv_gate_is_full(const struct fgv_worker *worker)
{
    return worker->nr_gates != 0 &&
           (fgv_sync_nr_open(worker) >= FGV_MAX_HELD_UP || worker->nr_marks >= FGV_MAX_HELD_UP);
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
    fgv_sync_poll(worker, fgv_clock_ns()); /* what runs behind a gate is charged from when nothing did */
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
    CUstreamBatchMemOpParams operations[FGV_MAX_STREAM_OPERATIONS];
    void *stream;
    if (fixed->count == 0 || fixed->count > FGV_MAX_STREAM_OPERATIONS ||
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
