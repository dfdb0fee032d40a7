/*
 * What of the submitted work is done. The worker never blocks in the driver for it: it records events of its own behind
 * the work (marks) and looks at them from the loop.
 *
 * Submissions are numbered over all streams. A mark says: this stream is done up to that number. Marks of a stream
 * finish in order, so only the first is looked at; requests that wait and arena chunks that are to be completed compare
 * numbers. Marks are recorded when somebody waits, when there is nothing else to do, and every so many submissions so
 * that the queue's length is known.
 *
 * A mark is work in a stream. While a stream is being captured none is recorded there: what waits for it goes straight
 * to the driver, which answers what CUDA answers.
 *
 * Wrong when: a guest records marks faster than the device finishes them on thousands of streams; each look at all busy
 * streams then costs.
 */
#include "track/sync.h"

#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/sticky.h"
#include "client/arena.h"
#include "client/current.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "ivshmem/event.h"
#include "page/bell.h"
#include "page/layout.h"
#include "track/due.h"
#include "track/latency.h"
#include "track/running.h"
#include "track/state.h"

static void set_busy(struct fgw_worker *worker, struct fgw_stream *stream)
{
    if (!stream->is_busy) {
        stream->is_busy = true;
        stream->next_busy = worker->track->busy;
        worker->track->busy = stream;
    }
}

static struct fgw_mark *take_mark(struct fgw_worker *worker, struct fgw_context *context)
{
    struct fgw_mark *mark = context->free_marks;
    if (mark) {
        context->free_marks = mark->next;
        return mark;
    }
    mark = malloc(sizeof(*mark));
    if (mark && worker->driver.cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        free(mark);
        mark = NULL;
    }
    return mark;
}

static void complete_due(struct fgw_worker *worker, struct fgw_stream *stream, uint64_t seq, CUresult result)
{
    while (stream->first_due && stream->first_due->seq <= seq) {
        struct fgw_chunk_due *due = stream->first_due;
        stream->first_due = due->next;
        if (!due->next) {
            stream->last_due = NULL;
        }
        fgw_complete_chunk(worker, due->chunk, result);
        free(due);
    }
}

/* Finds the count that submissions are in: those that are in no turn, stand behind a host function, or that the device
 * may be working on. */
static uint32_t *count_of(struct fgw_track *track, uint64_t behind_host, bool is_beside)
{
    return is_beside ? &track->nr_beside : behind_host != 0 ? &track->nr_behind_hosts : &track->nr_unfinished;
}

static void forget_unmarked(struct fgw_worker *worker, struct fgw_stream *stream)
{
    *count_of(worker->track, stream->behind_host, stream->is_beside) -= stream->nr_unmarked;
    worker->track->nr_copies -= stream->is_beside ? 0 : stream->nr_unmarked_copies;
    stream->nr_unmarked = stream->nr_unmarked_copies = 0;
}

/* No event can be recorded: what is being captured is not on the device, and without memory for an event the driver has
 * to wait. */
static void settle_unmarked(struct fgw_worker *worker, struct fgw_stream *stream, bool is_being_captured)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!is_being_captured) {
        /* Not waited for behind a host function: this thread may be needed for its end. */
        result = fgw_behind_may_run(worker) ? worker->driver.cuStreamQuery(stream->native)
                                            : worker->driver.cuStreamSynchronize(stream->native);
    }
    if (fgw_is_sticky(result)) { /* why there was no event */
        fgw_sync_fault(worker, stream->context, result);
        return;
    }
    forget_unmarked(worker, stream);
    if (!stream->first_mark) {
        stream->done_seq = stream->last_seq;
    }
    complete_due(worker, stream, UINT64_MAX, result);
}

static bool mark_in_its_context(struct fgw_worker *worker, struct fgw_stream *stream)
{
    struct fgw_context *context = stream->context;
    bool is_being_captured = fgw_stream_is_captured(worker, stream);
    struct fgw_mark *mark = is_being_captured ? NULL : take_mark(worker, context);
    if (!mark) {
        settle_unmarked(worker, stream, is_being_captured);
        return false;
    }
    fgw_latency_mark(worker, stream);
    CUresult result = worker->driver.cuEventRecord(mark->event, stream->native);
    if (result != CUDA_SUCCESS) {
        mark->next = context->free_marks;
        context->free_marks = mark;
        if (fgw_is_sticky(result)) {
            fgw_sync_fault(worker, context, result);
            return true;
        }
        settle_unmarked(worker, stream,
                        result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                            result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        return false;
    }
    mark->next = NULL;
    mark->seq = worker->track->seq;
    mark->behind_host = stream->behind_host;
    mark->nr_submissions = stream->nr_unmarked;
    mark->nr_copies = stream->nr_unmarked_copies;
    mark->is_gate = false;
    mark->is_beside = stream->is_beside;
    if (stream->last_mark) {
        stream->last_mark->next = mark;
    } else {
        stream->first_mark = mark;
    }
    stream->last_mark = mark;
    worker->track->nr_marks++;
    stream->marked_seq = worker->track->seq;
    stream->nr_unmarked = stream->nr_unmarked_copies = 0;
    set_busy(worker, stream);
    return true;
}

bool fgw_stream_mark(struct fgw_worker *worker, struct fgw_stream *stream)
{
    struct fgw_context *context = stream->context;
    struct fgw_context *before = worker->current;
    if (context->fault != CUDA_SUCCESS || stream->is_gone ||
        (stream->nr_unmarked == 0 && stream->marked_seq >= stream->last_seq)) {
        return true;
    }
    fgw_context_make_current(worker, context);
    if (worker->current != context) { /* an event made here would go with the other context */
        fgw_sync_fault(worker, context, CUDA_ERROR_INVALID_CONTEXT);
        return true;
    }
    bool is_marked = mark_in_its_context(worker, stream);
    if (before) {
        fgw_context_make_current(worker, before); /* that of the request at hand */
    }
    return is_marked;
}

/* What is in the stream has ended, or ends with its last mark, whatever comes behind it now. Who waited for it before
 * that waits for no more: an event that is recorded gets no mark, and nothing may follow it. */
static void close_so_far(const struct fgw_track *track, struct fgw_stream *stream)
{
    if (stream->last_mark && stream->last_seq <= stream->marked_seq) {
        stream->last_mark->seq = track->seq;
    } else if (!stream->last_mark && stream->last_seq <= stream->done_seq) {
        stream->done_seq = track->seq;
    }
}

void fgw_stream_touch(struct fgw_worker *worker, struct fgw_stream *stream)
{
    close_so_far(worker->track, stream);
    stream->last_seq = ++worker->track->seq;
}

void fgw_sync_submitted(struct fgw_worker *worker, struct fgw_stream *stream)
{
    struct fgw_track *track = worker->track;
    if (stream->context->fault != CUDA_SUCCESS) {
        return; /* nothing of it will be heard of */
    }
    close_so_far(track, stream);
    stream->last_seq = ++track->seq;
    stream->nr_unmarked++;
    const bool was_empty = track->nr_unfinished == 0;
    (*count_of(track, stream->behind_host, stream->is_beside))++;
    if (track->kind != FGW_SUBMIT_WORK) {
        stream->nr_unmarked_copies++;
        track->nr_copies += !stream->is_beside;
        track->listener->copied(worker);
    }
    fgw_count(&worker->slot->nr_copies_beside, track->kind == FGW_SUBMIT_BESIDE);
    track->is_last_copy = track->kind != FGW_SUBMIT_WORK;
    set_busy(worker, stream);
    if (stream->behind_host == 0 && !stream->is_beside && fgw_nr_running(worker) != 0) {
        track->listener->started(worker, was_empty, track->begun_ns);
    }
    if (stream->nr_unmarked >= worker->track->mark_every || worker->nr_captures != 0) {
        fgw_stream_mark(worker, stream);
    }
}

/* Where no mark will stand behind the last chunk it is over with the last mark that there is: its copy was waited for,
 * as no mark could be made, or it was captured after all, though the driver did not tell before. */
static void end_without_mark(struct fgw_worker *worker, struct fgw_stream *stream)
{
    const struct fgw_mark *mark = stream->last_mark;
    if (!mark) {
        const bool is_captured = fgw_stream_is_captured(worker, stream);
        complete_due(worker, stream, UINT64_MAX, is_captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
    } else if (stream->last_due->seq > mark->seq) {
        stream->last_due->seq = mark->seq;
    }
}

bool fgw_sync_chunk(struct fgw_worker *worker, struct fgw_stream *stream, uint32_t chunk, bool is_urgent)
{
    struct fgw_chunk_due *due = malloc(sizeof(*due));
    if (!due) {
        return false;
    }
    *due = (struct fgw_chunk_due){.seq = stream->last_seq, .chunk = chunk};
    if (stream->last_due) {
        stream->last_due->next = due;
    } else {
        stream->first_due = due;
    }
    stream->last_due = due;
    if (is_urgent || (stream->nr_unmarked == 0 && !stream->first_mark)) {
        fgw_stream_mark(worker, stream);
    }
    if (stream->last_due && stream->nr_unmarked == 0) {
        end_without_mark(worker, stream);
    }
    return true;
}

void fgw_sync_mark_all(struct fgw_worker *worker)
{
    for (struct fgw_stream *stream = worker->track->busy; stream; stream = stream->next_busy) {
        if (stream->nr_unmarked != 0) {
            fgw_stream_mark(worker, stream);
        }
    }
}

static void pop_mark(struct fgw_worker *worker, struct fgw_stream *stream, CUresult result)
{
    struct fgw_mark *mark = stream->first_mark;
    stream->first_mark = mark->next;
    if (!mark->next) {
        stream->last_mark = NULL;
    }
    stream->done_seq = mark->seq;
    *count_of(worker->track, mark->behind_host, mark->is_beside) -= mark->nr_submissions;
    worker->track->nr_copies -= mark->is_beside ? 0 : mark->nr_copies;
    worker->track->nr_gates -= mark->is_gate;
    worker->track->nr_marks--;
    complete_due(worker, stream, mark->seq, result);
    mark->next = stream->context->free_marks;
    stream->context->free_marks = mark;
}

void fgw_sync_finish_stream(struct fgw_worker *worker, struct fgw_stream *stream, CUresult result)
{
    while (stream->first_mark) {
        pop_mark(worker, stream, result);
    }
    forget_unmarked(worker, stream);
    stream->done_seq = worker->track->seq;
    complete_due(worker, stream, UINT64_MAX, result);
}

void fgw_sync_end_marks(struct fgw_worker *worker, struct fgw_stream *stream)
{
    forget_unmarked(worker, stream);
    if (stream->first_mark) {
        stream->last_seq = stream->marked_seq;
    } else {
        stream->done_seq = stream->last_seq;
        complete_due(worker, stream, UINT64_MAX, CUDA_SUCCESS); /* no mark will */
    }
}

/* Who is told of a fault finds what kernels printed before it: the driver gives that out when it is asked to wait,
 * which it does not do in a context that has failed. */
static void output_of_the_failed(struct fgw_worker *worker, struct fgw_context *context)
{
    struct fgw_context *before = worker->current;
    fgw_context_make_current(worker, context);
    worker->driver.cuCtxSynchronize();
    if (before) {
        fgw_context_make_current(worker, before);
    }
    fgw_printing_check(worker);
}

void fgw_sync_fault(struct fgw_worker *worker, struct fgw_context *context, CUresult result)
{
    if (context->fault != CUDA_SUCCESS) {
        return;
    }
    context->fault = result;
    if (fgw_may_print() || result == CUDA_ERROR_ASSERT) {
        output_of_the_failed(worker, context);
    }
    if (fgw_is_sticky(result)) {
        atomic_store_explicit(&worker->client->sticky_error, (uint32_t)result, memory_order_release);
    }
    fgv_events_finish(&worker->region, worker->layout.index); /* what is queued will not write there */
    atomic_store_explicit(&worker->slot->last_error, (uint32_t)result, memory_order_relaxed);
    for (struct fgw_stream *stream = context->streams; stream; stream = stream->next) {
        fgw_sync_finish_stream(worker, stream, result);
    }
    worker->track->listener->finished(worker, 0, fgw_clock_ns());
}

/* Looks at the first marks of one stream. */
static bool poll_stream(struct fgw_worker *worker, struct fgw_stream *stream)
{
    bool is_progress = false;
    while (stream->first_mark) {
        CUresult result = worker->driver.cuEventQuery(stream->first_mark->event);
        if (result == CUDA_ERROR_NOT_READY) {
            break;
        }
        is_progress = true;
        if (result != CUDA_SUCCESS) {
            fgw_sync_fault(worker, stream->context, result);
            break;
        }
        if (fgw_may_print() && stream->first_due && stream->first_due->seq <= stream->first_mark->seq &&
            worker->driver.cuEventSynchronize) {
            worker->driver.cuEventSynchronize(
                stream->first_mark->event); /* done: makes the driver write out what kernels printed */
            fgw_printing_check(worker);
        }
        pop_mark(worker, stream, CUDA_SUCCESS);
    }
    return is_progress;
}

static void note_end(struct fgw_worker *worker, uint32_t nr, uint32_t nr_copies, uint64_t now_ns)
{
    struct fgw_track *track = worker->track;
    if (now_ns > track->last_finish_ns) {
        fgw_due_note(worker, nr, nr_copies, now_ns);
        track->last_finish_ns = now_ns;
    }
    track->listener->finished(worker, nr, now_ns);
}

bool fgw_sync_poll(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_track *track = worker->track;
    const uint32_t before = track->nr_unfinished, copies_before = track->nr_copies;
    bool is_progress = false;
    struct fgw_stream **link = &worker->track->busy;
    while (*link) {
        struct fgw_stream *stream = *link;
        is_progress |= poll_stream(worker, stream);
        if (stream->first_mark || stream->nr_unmarked != 0) {
            link = &stream->next_busy;
            continue;
        }
        *link = stream->next_busy;
        stream->is_busy = false;
        fgw_stream_free_if_unused(stream);
    }
    if (is_progress) {
        track->listener->progressed(worker); /* before the accounts: somebody is waiting */
    }
    if (before != track->nr_unfinished) {
        note_end(worker, before - track->nr_unfinished, copies_before - track->nr_copies, now_ns);
    }
    track->polled_ns = now_ns;
    if (fgw_nr_running(worker) != 0) {
        track->listener->started(worker, false, track->begun_ns); /* what was gated goes on */
    }
    return is_progress;
}

uint32_t fgw_sync_set_beside(struct fgw_worker *worker)
{
    struct fgw_track *track = worker->track;
    const uint32_t nr = track->nr_unfinished;
    for (struct fgw_stream *stream = track->busy; stream; stream = stream->next_busy) {
        for (struct fgw_mark *mark = stream->first_mark; mark; mark = mark->next) {
            mark->is_beside = true;
        }
        stream->is_beside = true;
    }
    track->nr_beside += nr;
    track->nr_unfinished = track->nr_copies = 0;
    return nr;
}

void fgw_sync_settle(struct fgw_worker *worker, uint64_t limit_ns)
{
    uint64_t now_ns = fgw_clock_ns();
    const uint64_t end_ns = now_ns + limit_ns;
    fgw_sync_mark_all(worker);
    while (worker->track->nr_unfinished != 0 && now_ns < end_ns) {
        fgw_sync_poll(worker, now_ns);
        __builtin_ia32_pause();
        now_ns = fgw_clock_ns();
    }
}
