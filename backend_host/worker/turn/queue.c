/*
 * How much a worker has in the device's queue, and how often it hears of it.
 *
 * Nothing can be taken back from the device, so the length of what is queued is how long others wait. The mean time of
 * a submission is known from the worker's own history (due.h). While somebody waits, only as many are queued as fit
 * what is left of the slice. While nobody waits but somebody did lately, no more than a slice is queued, and less where
 * the hand-over waits for all of it.
 *
 * Wrong when: kernels of one program differ by orders of magnitude. Their mean lags behind, and a slice overruns by
 * what was queued.
 */
#include "turn/queue.h"

#include "client/state.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "track/due.h"
#include "track/running.h"
#include "track/state.h"
#include "turn/state.h"

/* While somebody waits an event is recorded this often, so finished work is noticed that late at most. Each takes less
 * than half a us of the device's time (docs/lab/hand-overs.md). */
#define FGW_MARK_NS UINT64_C(100000)
/* Who waited a moment ago may be back in the next: one that waits for each of its kernels is away after each. A second
 * has the turns of thirty others in it. */
#define FGW_SHARED_NS UINT64_C(1000000000)
/* An eighth of a slice is queued then, where the hand-over waits for it: with a whole one, programs that wait for each
 * kernel got done 4 % less (docs/lab/hand-overs.md). */
#define FGW_SHARED_DIVISOR 8u
/* Who is alone queues 100 ms of work: the device stays busy while the worker naps, and a newcomer does not wait for
 * seconds. */
#define FGW_ALONE_NS UINT64_C(100000000)
/* Two at least are queued, so that the device has the next one when it ends one. */
#define FGW_MIN_QUEUED 2u
/* Alone it is 32 at least, as kernels of several streams may run side by side, small ones by the dozen. */
#define FGW_MIN_QUEUED_ALONE 32u
/* Before any of a stream has ended it is eight: enough to keep a device busy with short ones, few if they are long. */
#define FGW_MIN_QUEUED_UNKNOWN 8u
/* Nothing ended for so long: what runs may wait for what comes next. Longer than most kernels last, short for who waits
 * in front of a program. */
#define FGW_STALLED_NS UINT64_C(1000000000)
/* After so many of those it does not grow: 2 << 10 are more than may be unfinished. */
#define FGW_MAX_STALLS 10u
/* A queue has so many marks in it: it is refilled when a quarter of it has ended. */
#define FGW_MARKS_IN_QUEUE 4u

bool fgw_queue_has_room(const struct fgw_worker *worker)
{
    return fgw_track_nr_open(worker) < FGW_MAX_UNFINISHED;
}

/* Tells how many submissions last so long: `least` when that is not known. */
static uint32_t fitting(const struct fgw_worker *worker, uint64_t time_ns, uint32_t least)
{
    uint64_t nr = worker->track->due.mean_ns == 0 ? least : time_ns / worker->track->due.mean_ns;
    return nr < least ? least : nr < FGW_MAX_UNFINISHED ? (uint32_t)nr : FGW_MAX_UNFINISHED;
}

static uint32_t bounded_interval(uint64_t interval)
{
    return interval < 1 ? 1 : interval < FGW_MARK_INTERVAL ? (uint32_t)interval : FGW_MARK_INTERVAL;
}

/* One at least, for a slice that is too short for any. Where the hand-over waits for the device it is all that begin
 * within the slice: the last one would anyway, a moment after the end of the one before it was seen. Where the grant
 * goes on before the last one ends, it does so in better time without (docs/lab/hand-overs.md). */
uint32_t fgw_queue_most(struct fgw_worker *worker, uint64_t left_ns)
{
    const uint64_t beyond_ns = fgw_grant_is_preemptive(&worker->grantee) || worker->track->due.mean_ns == 0
                                   ? 0
                                   : worker->track->due.mean_ns - 1;
    fgw_track_mark_every(
        worker, bounded_interval(worker->track->due.mean_ns == 0 ? 1 : FGW_MARK_NS / worker->track->due.mean_ns));
    return fitting(worker, left_ns + beyond_ns, 1);
}

/* Others use the device too, if not now. */
static bool is_shared(struct fgw_worker *worker, uint64_t now_ns)
{
    if (now_ns - worker->turn->shared_ns >= FGW_SHARED_NS) {
        worker->turn->shared_ns = 0;
    }
    return worker->turn->shared_ns != 0;
}

/* Where others may be back at any moment it is no more than they would have to wait for anyway, and where they wait for
 * all of it a part of that: a slice that is over by then ends soon. Alone it is what keeps the device busy, so that a
 * newcomer does not wait for seconds. */
uint32_t fgw_queue_most_unwaited(struct fgw_worker *worker)
{
    const uint64_t slice_ns = fgw_grant_slice_ns(&worker->grantee);
    uint64_t shared_ns = fgw_grant_is_preemptive(&worker->grantee) ? slice_ns : slice_ns / FGW_SHARED_DIVISOR;
    uint32_t nr = worker->turn->shared_ns != 0 && is_shared(worker, fgw_clock_ns())
                      ? fitting(worker, shared_ns, FGW_MIN_QUEUED)
                      : fitting(worker, FGW_ALONE_NS, FGW_MIN_QUEUED_ALONE);
    fgw_track_mark_every(worker, bounded_interval(nr / FGW_MARKS_IN_QUEUE));
    if (worker->track->nr_unfinished >= nr && fgw_clock_ns() - worker->track->last_finish_ns > FGW_STALLED_NS) {
        return FGW_MAX_UNFINISHED;
    }
    return nr;
}

uint32_t fgw_queue_most_within(struct fgw_worker *worker, uint64_t time_ns)
{
    fgw_track_mark_every(worker, 1);
    return fitting(worker, time_ns, 1);
}

/* Kernels of one stream do not run side by side: more of them in its queue than keep the device busy would only make a
 * newcomer wait, for seconds when they are long ones that cannot go in parts. An end that is overdue tells of a long
 * one before it has ended. */
static uint64_t most_in_stream(const struct fgw_worker *worker)
{
    uint64_t due_ns = fgw_due_mark_ns(worker);
    uint64_t overdue_ns = due_ns != 0 && worker->track->polled_ns > due_ns ? worker->track->polled_ns - due_ns : 0;
    uint64_t running_ns = worker->track->polled_ns > worker->track->last_finish_ns
                              ? worker->track->polled_ns - worker->track->last_finish_ns
                              : 0;
    uint64_t nr = worker->track->due.mean_ns == 0 ? FGW_MIN_QUEUED_UNKNOWN
                                                  : FGW_ALONE_NS / (worker->track->due.mean_ns + overdue_ns);
    uint64_t stalled = running_ns / FGW_STALLED_NS; /* what runs may wait for what comes: twice as many each time */
    uint64_t least = FGW_MIN_QUEUED << (stalled < FGW_MAX_STALLS ? stalled : FGW_MAX_STALLS);
    return nr < least ? least : nr;
}

bool fgw_queue_is_deep(const struct fgw_worker *worker)
{
    return worker->track->nr_unfinished >= FGW_MIN_QUEUED && !fgw_grant_others_wait(&worker->grantee) &&
           worker->track->nr_unfinished >= most_in_stream(worker);
}

bool fgw_queue_fits_stream(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    if (!stream || fgw_nr_in_stream(stream) < most_in_stream(worker)) {
        return true;
    }
    fgw_track_mark_every(worker, 1);
    return false;
}
