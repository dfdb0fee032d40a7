/*
 * Streams that are gated. cuStreamWaitValue gates a stream until somebody writes a value, for ever if nobody does.
 * What is queued behind it costs the GPU nothing meanwhile: it is not charged, and keeps no grant.
 *
 * A mark with no submission before it tells: while it is the first that is open, all that ran in the stream has ended
 * and nothing behind it has begun. One is set behind each wait for a value. While any of those is open, streams may be
 * gated by each other as well (by events, by the default stream), so one is set before each submission, and behind
 * everything else that has a place in a stream, until the last has passed.
 *
 * A driver's queue that is full blocks who puts more into it, and here nothing may empty it. So while a stream waits,
 * less is queued, and what is too much stays in the backlog, for which no grant is asked.
 *
 * Wrong when: the value is to be written by work that is queued behind more than FGW_MAX_GATED others: a driver takes
 * some more. And when what was gated begins to run while another vGPU has its turn: it is charged from then on, so
 * the account is right, but it ran out of turn.
 */
#include "track/gate.h"

#include "client/service.h"
#include "client/state.h"
#include "page/bell.h"
#include "track/state.h"
#include "track/sync.h"

static bool is_wait_for_value(uint16_t call)
{
    return call == FGV_CALL_cuStreamWaitValue32_v2 || call == FGV_CALL_cuStreamWaitValue64_v2 ||
           call == FGV_CALL_cuStreamBatchMemOp_v2;
}

/* It is no submission. What it writes to may go, or be shared, once a mark behind it has passed. */
static bool is_written_value(uint16_t call)
{
    return call == FGV_CALL_cuStreamWriteValue32_v2 || call == FGV_CALL_cuStreamWriteValue64_v2;
}

static bool may_gate(const struct fgw_worker *worker, uint16_t call)
{
    return is_wait_for_value(call) || worker->track->nr_gates != 0;
}

bool fgw_gate_is_full(const struct fgw_worker *worker)
{
    return worker->track->nr_gates != 0 &&
           (fgw_track_nr_open(worker) >= FGW_MAX_GATED || worker->track->nr_marks >= FGW_MAX_GATED);
}

void fgw_gate_prepare(struct fgw_worker *worker, struct fgw_stream *stream, uint16_t call)
{
    if (is_wait_for_value(call)) {
        fgw_sync_mark_all(worker); /* what other streams have by now is not behind it */
    } else if (may_gate(worker, call)) {
        fgw_stream_mark(worker, stream);
    }
}

void fgw_gate_close(struct fgw_worker *worker, struct fgw_stream *stream, const struct fgw_request *request)
{
    if (!may_gate(worker, request->header->call) && !is_written_value(request->header->call)) {
        return;
    }
    if (fgw_stream_mark(worker, stream) && stream->last_mark && stream->marked_seq == worker->track->seq &&
        is_wait_for_value(request->header->call)) {
        stream->last_mark->is_gate = true;
        worker->track->nr_gates++;
    }
}

void fgw_gate_submit(struct fgw_worker *worker, struct fgw_stream *stream)
{
    if (worker->track->nr_gates == 0) {
        return;
    }
    fgw_sync_poll(worker, fgw_clock_ns()); /* what runs behind a gate is charged from when nothing did */
    if (stream->nr_unmarked == 0) {
        fgw_stream_touch(worker, stream); /* a mark here, though nothing is before it */
    }
    fgw_stream_mark(worker, stream);
}
