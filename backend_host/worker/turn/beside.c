#include "turn/beside.h"

#include "base/count.h"
#include "client/arena.h"
#include "client/service.h"
#include "client/state.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/grantee.h"
#include "page/outlook.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/charge.h"
#include "turn/moves.h"
#include "turn/patience.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/ways.h"

/* Pinned copies have so many bytes of credit, some 5 ms of an engine's time: a batch of a program goes at once, and
 * others' copies wait for it no longer than for a part of a slice. */
#define PINNED_MOST (UINT64_C(256) << 20)
/* It comes back by so much, less than a tenth of what an engine copies: who copies all the time takes turns. */
#define PINNED_PER_NS UINT64_C(4)
/* Staged ones have as much as a CPU stages in some 4 ms. */
#define STAGED_MOST (UINT64_C(64) << 20)
/* It comes back by more than a CPU stages, 15 GB/s (docs/lab/copies.md): the credit bounds bursts, and no program runs
 * out of it for long. */
#define STAGED_PER_NS UINT64_C(16)
/* So many copies of one worker are on their way: an engine always has the next, and others' copies wait for few. */
#define MOST 8u

void fgw_beside_init(struct fgw_worker *worker)
{
    int nr_engines = 0;
    worker->turn->beside.is_possible =
        worker->driver.cuDeviceGetAttribute &&
        worker->driver.cuDeviceGetAttribute(&nr_engines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, worker->device) ==
            CUDA_SUCCESS &&
        nr_engines > 0;
    worker->turn->beside.pinned.bytes = PINNED_MOST;
    worker->turn->beside.staged.bytes = STAGED_MOST;
    worker->turn->beside.credit = &worker->turn->beside.staged;
}

/* Nothing of this worker is on the device, or on its way there, that a copy would come behind. */
static bool has_only_copies(const struct fgw_worker *worker)
{
    return worker->track->nr_unfinished == worker->track->nr_copies && worker->track->nr_behind_hosts == 0 &&
           worker->track->nr_gates == 0 && worker->track->behind.nr == 0 && worker->nr_captures == 0 &&
           !worker->turn->above->is_in_parts(worker);
}

static bool takes_turns(const struct fgw_worker *worker)
{
    return worker->turn->beside.bytes > worker->turn->beside.credit->bytes;
}

/* The grant is worth more to others, and will be back when this worker has kernels again: the next one's turns end
 * before its slices do, or it gives way to who comes back. */
static bool should_step_aside(const struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return outlook->others_wait && (fgw_ways_interrupt(worker) || !fgw_outlook_next_stays(outlook));
}

/* What is on the device goes on beside the next one's work. Until there are kernels again it is no pause: this worker
 * does not wait. */
static void step_aside(struct fgw_worker *worker, uint64_t now_ns)
{
    fgw_count(&worker->slot->nr_copies_beside, fgw_sync_set_beside(worker));
    fgw_charge_finished(worker, 0, now_ns);
    fgw_move_leave(worker, FGW_WORK_NONE, false, now_ns);
    fgw_patience_forget_pause(worker);
}

bool fgw_beside_is_full(const struct fgw_worker *worker)
{
    return worker->track->nr_beside >= MOST;
}

bool fgw_beside_begin(struct fgw_worker *worker, const struct fgw_request *request)
{
    struct fgw_beside *beside = &worker->turn->beside;
    if (!beside->is_possible) {
        return false;
    }
    beside->bytes = fgw_copy_bytes(request);
    beside->credit = fgw_copy_is_pinned(request) ? &beside->pinned : &beside->staged;
    if (!has_only_copies(worker) || takes_turns(worker)) {
        return false;
    }
    if (!fgw_turn_is_user(worker)) {
        if (!fgw_grant_is_anothers(&worker->grantee)) {
            return false;
        }
        fgw_move_out(worker); /* what it waited for goes now */
        return true;
    }
    struct fgw_outlook outlook = fgw_outlook_take(&worker->grantee, fgw_clock_ns());
    if (!should_step_aside(worker, &outlook)) {
        return false;
    }
    step_aside(worker, outlook.now_ns);
    return true;
}

void fgw_beside_prepare(struct fgw_worker *worker, struct fgw_stream *stream)
{
    const bool is_beside = worker->track->kind == FGW_SUBMIT_BESIDE;
    if (stream->is_beside == is_beside) {
        return;
    }
    if (stream->nr_unmarked != 0) {
        fgw_stream_mark(worker, stream);
    }
    if (stream->nr_unmarked == 0) {
        stream->is_beside = is_beside;
    }
}

bool fgw_beside_is_before(const struct fgw_stream *stream)
{
    return stream &&
           ((stream->is_beside && stream->nr_unmarked != 0) || (stream->last_mark && stream->last_mark->is_beside));
}

void fgw_beside_submitted(struct fgw_worker *worker)
{
    struct fgw_copy_credit *credit = worker->turn->beside.credit;
    if (!worker->turn->beside.is_possible) {
        return;
    }
    if (credit->bytes == (credit == &worker->turn->beside.pinned ? PINNED_MOST : STAGED_MOST)) {
        credit->filled_ns = fgw_clock_ns();
    }
    credit->bytes -= worker->turn->beside.bytes < credit->bytes ? worker->turn->beside.bytes : credit->bytes;
    worker->turn->beside.was_copying = true;
}

static void fill(struct fgw_copy_credit *credit, uint64_t most_bytes, uint64_t per_ns, uint64_t now_ns)
{
    const uint64_t missing_bytes = most_bytes - credit->bytes, passed_ns = now_ns - credit->filled_ns;
    credit->bytes += passed_ns >= missing_bytes / per_ns ? missing_bytes : passed_ns * per_ns;
}

/*
 * That of pinned copies not while it copies, or waits for a turn to copy: who does nothing else has none. Copies that
 * are found done may have been on their way until just now.
 */
static void fill_credits(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_beside *beside = &worker->turn->beside;
    const struct fgw_track *track = worker->track;
    const bool is_copying = track->nr_beside != 0 || track->nr_copies != 0 || fgw_turn_is_waiting(worker);
    if (!is_copying && !beside->was_copying) {
        fill(&beside->pinned, PINNED_MOST, PINNED_PER_NS, now_ns);
    }
    beside->was_copying = is_copying;
    fill(&beside->staged, STAGED_MOST, STAGED_PER_NS, now_ns);
    beside->pinned.filled_ns = beside->staged.filled_ns = now_ns;
}

bool fgw_beside_poll(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    const struct fgw_beside *beside = &worker->turn->beside;
    if (!beside->is_possible) {
        return false;
    }
    if (beside->pinned.bytes < PINNED_MOST || beside->staged.bytes < STAGED_MOST) {
        fill_credits(worker, outlook->now_ns);
    }
    if (!worker->track->is_last_copy || !outlook->has || !has_only_copies(worker) || worker->turn->has_backlog ||
        takes_turns(worker) || !should_step_aside(worker, outlook)) {
        return false;
    }
    step_aside(worker, outlook->now_ns);
    return true;
}
