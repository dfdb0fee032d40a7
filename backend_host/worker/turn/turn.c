/*
 * When this worker may submit GPU work, and what its vGPU is charged for it.
 *
 * Alone on the device a worker keeps the grant while it works and gives it back when it has been idle for a moment;
 * asking costs a load and a compare, and a look at one cache line that nobody writes. As soon as another vGPU waits,
 * no more is queued than fits what is left of the slice (queue.c), and at its end the grant is closed, the queue runs
 * dry, and the grant is handed over.
 *
 * GPU time is the time with work in flight, less what it takes to get work to an idle device and to hear of its end
 * (latency.h). It is charged when work ends and, for long kernels, as they go.
 *
 * On a device that preempts the grant goes on a moment before the queue has run dry, so that the next one's first
 * kernel is there when the last one ends, and does not wait for a kernel that outlives its slice by far. Such a kernel
 * is taken off the device, where there is a way (withdraw.h), and goes on in this one's next turn. It may run beside
 * the next one's at first, which costs nothing when that wants the device for a moment only.
 *
 * A program that waits for each of its kernels has nothing to submit for a moment after each, and would lose the rest
 * of its turn every time. So an idle holder keeps the grant for about as long as its pauses usually last, provided that
 * they are shorter than a switch to another vGPU and back, or it still stands before all who wait, or has only just
 * got it. What it holds without use it pays for. One that pauses for longer than it works is not waited for.
 *
 * Large launches go in parts (parts.c), each of them a submission here. Copies may need no turn (beside.c).
 *
 * Wrong when: the end of what is queued is expected wrongly (due.h). The grant then goes on too late, or beside work
 * that others do not expect.
 */
#include "turn/turn.h"

#include "client/state.h"
#include "ivshmem/habit.h"
#include "page/account.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/grantee.h"
#include "page/outlook.h"
#include "track/due.h"
#include "track/latency.h"
#include "track/running.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/beside.h"
#include "turn/queue.h"
#include "turn/state.h"
#include "turn/withdraw.h"

/* An idle holder keeps the grant for so long while nobody waits: a program that submits again by then need not ask for
 * it. Who comes meanwhile makes it the next one. */
#define FGW_IDLE_NS UINT64_C(100000)
/* It keeps it for so long while somebody waits and no more would pay: a program's way from one call to its next, and
 * little beside the 150 us of a hand-over. */
#define FGW_IDLE_CONTENDED_NS UINT64_C(20000)
/* A pause of more than a quarter of the slice is sleep: the device would stand still for most of the turn. */
#define FGW_PAUSE_SLICE_DIVISOR 4
/* Short pauses are waited out, and a newcomer has to wait, until an eighth of the slice is over: of 30 ms that is 25
 * times what a hand-over costs. */
#define FGW_MIN_SLICE_DIVISOR 8
/* Who is behind by a slice waits for a thirty-second of one: of 30 ms that is six times what a hand-over costs, which
 * is little beside what it is owed. */
#define FGW_OWED_SLICE_DIVISOR 32
/* A look for newcomers compares all who wait, so it is rare; one is seen late by as much as the work that is let go on
 * at a hand-over. */
#define FGW_NEWCOMER_LOOK_NS UINT64_C(50000)
/* A call of the driver that takes longer did more than submit, which takes some 50 us after a rest: it compiled, say.
 */
#define FGW_SUBMIT_MAX_NS UINT64_C(1000000)
/* Work that goes on is charged this often: a standing is late by that at most, a sixtieth of a slice of 30 ms. */
#define FGW_CHARGE_NS UINT64_C(500000)
/* So much work may be left when the grant goes on: what handing it on takes. 60 and 75 us did no better
 * (docs/lab/hand-overs.md). */
#define FGW_LEAD_NS UINT64_C(50000)
/* A persistent kernel that was told to stop is waited for so long, which is the device's own time slice: blocks that
 * last longer are left to those. */
#define FGW_STOP_NS UINT64_C(2000000)
/* So long before a slice ends the next one is woken: waking takes less, and it spins for longer (rest.c). */
#define FGW_ALERT_NS UINT64_C(200000)
/* Who waited so long for a turn has a client that sleeps: clients spin for no longer at one go. */
#define FGW_ROUSE_NS UINT64_C(1000000)

void fgw_turn_started(struct fgw_worker *worker, bool was_empty, uint64_t begun_ns)
{
    if (!was_empty && worker->turn->busy_since_ns != 0) {
        return;
    }
    uint64_t now_ns = fgw_clock_ns();
    uint64_t from_ns = now_ns - begun_ns < FGW_SUBMIT_MAX_NS ? begun_ns : now_ns;
    worker->turn->busy_since_ns = from_ns + fgw_latency_ns(worker, from_ns);
    fgw_grant_set_running(&worker->grantee, true);
    fgw_track_measure_from(worker, from_ns);
    worker->turn->burst_since_ns = from_ns;
}

void fgw_turn_charge(struct fgw_worker *worker, uint64_t now_ns)
{
    if (now_ns > worker->turn->busy_since_ns) {
        fgw_grant_set_running(&worker->grantee, true); /* a tail that is longer than it should be */
        fgw_grant_charge(&worker->grantee, worker->turn->busy_since_ns, now_ns);
        worker->turn->busy_since_ns = now_ns;
    }
}

/* What it takes to get work to the device and to hear of its end is no use of the device, but in a turn it keeps the
 * device from others. What it takes longer at the beginning of a turn is the device's switch, and nobody's. */
static void hold_for_latency(struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    if (fgw_grant_has(grantee) && fgw_grant_others_wait(grantee) && fgw_grant_runs_alone(grantee)) {
        const uint64_t latency_ns = worker->track->latency.soon.mean_ns;
        const uint64_t burst_ns = now_ns - worker->turn->burst_since_ns;
        fgw_grant_charge_hold(&worker->grantee, latency_ns < burst_ns ? latency_ns : burst_ns);
    }
}

void fgw_turn_finished(struct fgw_worker *worker, uint32_t nr, uint64_t now_ns)
{
    if (nr != 0 && worker->turn->busy_since_ns == 0) {
        worker->turn->busy_since_ns = worker->track->polled_ns; /* it began and ended since nothing ran */
    }
    if (worker->turn->busy_since_ns != 0 && fgw_nr_running(worker) == 0) {
        fgw_latency_finish(worker, now_ns);
        fgw_turn_charge(worker, now_ns);
        hold_for_latency(worker, now_ns);
        fgw_grant_set_running(&worker->grantee, false);
        worker->turn->busy_since_ns = worker->turn->tail_until_ns = 0;
        worker->turn->pause_since_ns = now_ns;
        if (!worker->track->is_last_copy) {
            worker->turn->burst_ns = fgw_mean_with(worker->turn->burst_ns, now_ns - worker->turn->burst_since_ns);
        }
    }
}

/* There is work again. The CPU's part of a row of copies is none of its habits. */
static void end_pause(struct fgw_worker *worker, uint64_t now_ns)
{
    uint64_t slice_ns = fgw_grant_slice_ns(&worker->grantee);
    uint64_t pause_ns = now_ns - worker->turn->pause_since_ns;
    pause_ns = pause_ns < slice_ns ? pause_ns : slice_ns; /* a long sleep is soon forgotten */
    if (!worker->track->is_last_copy) {
        fgv_habit_note(&worker->turn->pause, pause_ns);
    }
    worker->turn->pause_since_ns = 0;
}

static void end_hold(struct fgw_worker *worker, uint64_t now_ns, bool others_wait)
{
    if (worker->turn->idle_since_ns != 0 && others_wait) {
        fgw_grant_charge_hold(&worker->grantee, now_ns - worker->turn->idle_since_ns);
    }
    worker->turn->idle_since_ns = 0;
}

void fgw_turn_leave(struct fgw_worker *worker, bool wants_more, uint64_t now_ns)
{
    end_hold(worker, now_ns, fgw_grant_others_wait(&worker->grantee));
    fgw_grant_leave(&worker->grantee, wants_more, now_ns);
}

/* Tells how long an idle holder keeps what others want. */
static uint64_t patience_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    if (!fgw_grant_others_wait(grantee)) {
        return FGW_IDLE_NS;
    }
    uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    uint64_t pause_ns = fgv_habit_mean_ns(&worker->turn->pause);
    if (pause_ns == 0 || pause_ns > worker->turn->burst_ns || pause_ns > slice_ns / FGW_PAUSE_SLICE_DIVISOR) {
        return FGW_IDLE_CONTENDED_NS;
    }
    uint64_t most_ns = pause_ns + fgv_habit_spread_ns(&worker->turn->pause);
    if (most_ns <= FGW_SWITCH_NS) {
        return FGW_SWITCH_NS; /* that long is never worse than twice the best */
    }
    uint64_t left_ns = fgw_grant_left_ns(grantee, now_ns);
    if (slice_ns - left_ns >= slice_ns / FGW_MIN_SLICE_DIVISOR && !fgw_grant_is_first(grantee)) {
        return FGW_IDLE_CONTENDED_NS;
    }
    return most_ns;
}

/* This turn is given up for a newcomer. */
static bool is_hurried(const struct fgw_worker *worker)
{
    return worker->turn->hurried_sequence == fgw_grant_sequence(&worker->grantee);
}

/* Somebody slept, comes back and stands before this vGPU, which has had some of its slice; or, sooner, is a slice
 * behind. What is shorter than a switch is no sleep: so programs that wait for each kernel are away after their turns.
 */
static bool has_newcomer(const struct fgw_grantee *grantee, uint64_t had_ns, uint64_t slice_ns)
{
    return (had_ns >= slice_ns / FGW_MIN_SLICE_DIVISOR && fgw_grant_has_newcomer(grantee, FGW_SWITCH_NS, 0)) ||
           (had_ns >= slice_ns / FGW_OWED_SLICE_DIVISOR && fgw_grant_has_newcomer(grantee, 0, slice_ns));
}

/* A launch that goes in parts can stop at any of them, and other work be withdrawn. */
static void look_for_newcomer(struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    uint64_t left_ns = fgw_grant_left_ns(grantee, now_ns);
    uint64_t had_ns = slice_ns > left_ns ? slice_ns - left_ns : 0;
    const bool can_stop = worker->turn->above->is_in_parts(worker) || worker->turn->withdrawal.set_off;
    if (!can_stop || left_ns == 0 || now_ns - worker->turn->newcomer_looked_ns < FGW_NEWCOMER_LOOK_NS) {
        return;
    }
    worker->turn->newcomer_looked_ns = now_ns;
    if (has_newcomer(grantee, had_ns, slice_ns)) {
        worker->turn->hurried_sequence = fgw_grant_sequence(grantee);
    }
}

/* Tells what is left of the slice, or of the next one when it is its own too. */
static uint64_t slice_left_ns(struct fgw_worker *worker, uint64_t now_ns)
{
    uint64_t left_ns = fgw_grant_left_ns(&worker->grantee, now_ns);
    if (is_hurried(worker)) {
        return 0;
    }
    if (left_ns == 0 && fgw_grant_renew(&worker->grantee, now_ns)) {
        left_ns = fgw_grant_left_ns(&worker->grantee, now_ns);
    }
    return left_ns;
}

/* The next one's work is there before this worker's ends. What is left is paid for now, as it will be short; the rest
 * of a kernel that goes on for long is charged as it goes. */
static void make_way(struct fgw_worker *worker, uint64_t left_ns, uint64_t now_ns)
{
    fgw_turn_charge(worker, now_ns);
    if (left_ns <= FGW_LEAD_NS) {
        fgw_grant_charge(&worker->grantee, now_ns, now_ns + left_ns);
        fgw_grant_set_running(&worker->grantee, false);
        worker->turn->busy_since_ns = worker->turn->tail_until_ns = now_ns + FGW_TAIL_NS;
    }
}

static void end_tail(struct fgw_worker *worker, uint64_t now_ns)
{
    if (worker->turn->busy_since_ns > now_ns) {
        worker->turn->busy_since_ns = now_ns;
        fgw_grant_set_running(&worker->grantee, true);
    }
    worker->turn->tail_until_ns = 0;
}

/* A look at the clock takes some 80 instructions: one of them is enough for a submission to an idle device. */
static uint64_t clock_unless(uint64_t now_ns)
{
    return now_ns != 0 ? now_ns : fgw_clock_ns();
}

bool fgw_turn_begin(struct fgw_worker *worker)
{
    struct fgw_grantee *grantee = &worker->grantee;
    if (worker->track->nr_unfinished >= FGW_MAX_UNFINISHED) {
        return false;
    }
    uint64_t now_ns = 0; /* not read */
    if (fgw_nr_running(worker) == 0) {
        now_ns = fgw_clock_ns();
        fgw_track_begins(worker, now_ns);
        if (worker->turn->pause_since_ns != 0) {
            end_pause(worker, now_ns);
        }
    }
    if (!fgw_grant_has(grantee) && (grantee->is_user || !fgw_grant_enter(grantee, clock_unless(now_ns)))) {
        worker->turn->shared_ns = fgw_clock_ns();
        return false;
    }
    const bool others_wait = fgw_grant_others_wait(grantee);
    if (worker->turn->idle_since_ns != 0) {
        end_hold(worker, clock_unless(now_ns), others_wait);
    }
    if (worker->turn->tail_until_ns != 0) {
        end_tail(worker, clock_unless(now_ns));
    }
    if (!others_wait) {
        return worker->track->nr_unfinished < fgw_queue_most_unwaited(worker);
    }
    worker->turn->shared_ns = fgw_clock_ns();
    uint64_t left_ns = slice_left_ns(worker, worker->turn->shared_ns);
    if (left_ns == 0) {
        fgw_grant_close(grantee);
        return false;
    }
    return fgw_nr_running(worker) < fgw_queue_most(worker, left_ns);
}

/* Tells whether a grant is wanted for something: for a backlog that is gated it is not. */
static bool has_pending(const struct fgw_worker *worker)
{
    const struct fgw_turn *turn = worker->turn;
    return turn->is_wanted_behind || (turn->has_backlog && fgw_queue_has_room(worker) && !turn->is_gated);
}

/* The next one is awake when the slice ends. Told once in a slice, and not when another slice is this vGPU's too. */
static void alert_in_time(struct fgw_worker *worker, uint64_t left_ns)
{
    struct fgw_grantee *grantee = &worker->grantee;
    uint32_t sequence = fgw_grant_sequence(grantee);
    if (left_ns < FGW_ALERT_NS && worker->turn->alerted_sequence != sequence && !fgw_grant_is_first(grantee)) {
        worker->turn->alerted_sequence = sequence;
        fgw_grant_alert_next(grantee);
    }
}

/* Its first work is on the device: whoever waits for it and sleeps is awake when it ends. */
static void rouse_client(struct fgw_worker *worker)
{
    if (fgw_grant_take_waited_ns(&worker->grantee) >= FGW_ROUSE_NS) {
        worker->turn->above->rouse(worker);
    }
}

/* Tells how much longer the device will be at it, by what it took so far; UINT64_MAX: nobody knows, as what is overdue
 * by more than a little is not what came before it. */
static uint64_t work_left_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t end_ns = fgw_due_end_ns(worker);
    if (end_ns == 0 || now_ns > end_ns + FGW_LEAD_NS) {
        return UINT64_MAX;
    }
    return end_ns > now_ns ? end_ns - now_ns : 0;
}

uint64_t fgw_turn_way_ns(const struct fgw_worker *worker)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    if (!grantee->is_user || fgw_grant_has(grantee) || !fgw_grant_is_preemptive(grantee) ||
        fgw_nr_running(worker) == 0) {
        return 0;
    }
    const uint64_t end_ns = fgw_due_end_ns(worker);
    return end_ns > FGW_LEAD_NS ? end_ns - FGW_LEAD_NS : 0;
}

/* A persistent kernel is told to stop before others may have the device: beside their work its last blocks would wait
 * for the device's time slices, and so would the word to stop. */
static bool is_stopping(struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t stopped_ns = worker->turn->above->stop(worker);
    return stopped_ns != 0 && now_ns < stopped_ns + FGW_STOP_NS;
}

/* Tells whether others may have the device now that the slice is over; if so, what is still to be charged is. */
static bool try_to_make_way(struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    if (fgw_nr_running(worker) == 0 || worker->turn->busy_since_ns == 0 || !fgw_grant_is_preemptive(grantee)) {
        return fgw_nr_running(worker) == 0;
    }
    if (is_stopping(worker, now_ns)) {
        return false;
    }
    uint64_t left_ns = work_left_ns(worker, now_ns);
    const uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    if (left_ns > FGW_LEAD_NS && left_ns <= slice_ns / FGW_LONG_DIVISOR && !is_hurried(worker)) {
        return false;
    }
    if (is_hurried(worker) || !fgw_withdraw_for_next(worker, now_ns)) {
        make_way(worker, left_ns, now_ns);
    }
    return true;
}

/* Tells since when the work that is on the device has kept it without any of it ending; 0: there is none. */
static uint64_t stalled_since_ns(const struct fgw_worker *worker)
{
    if (fgw_nr_running(worker) == 0 || fgw_turn_is_off(worker)) {
        return 0;
    }
    const uint64_t back_ns = worker->turn->withdrawal.back_ns;
    return worker->track->last_finish_ns > back_ns ? worker->track->last_finish_ns : back_ns;
}

void fgw_turn_poll(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_grantee *grantee = &worker->grantee;
    const bool is_running = fgw_nr_running(worker) != 0;
    atomic_store_explicit(&grantee->slot->stalled_since_ns, stalled_since_ns(worker), memory_order_relaxed);
    if (fgw_turn_is_off(worker)) {
        fgw_withdrawn_poll(worker, now_ns);
        return;
    }
    fgw_beside_poll(worker, now_ns);
    if (is_running && grantee->turn_waited_ns != 0) {
        rouse_client(worker);
    }
    if (is_running && worker->turn->busy_since_ns != 0 && now_ns - worker->turn->busy_since_ns > FGW_CHARGE_NS) {
        fgw_turn_charge(worker, now_ns);
    }
    if (fgw_track_nr_open(worker) != 0 && (!fgw_grant_has(grantee) || fgw_grant_others_wait(grantee))) {
        fgw_sync_mark_all(worker); /* its end is what others wait for, however busy the ring is */
    }
    if (grantee->is_waiting && !has_pending(worker)) {
        fgw_grant_wait_cancel(grantee);
    }
    if (!grantee->is_user) {
        if (!fgw_withdraw_if_in_the_way(worker, now_ns) && grantee->is_waiting) {
            fgw_grant_nudge(grantee, now_ns);
        }
        return;
    }
    if (fgw_grant_has(grantee) && fgw_grant_others_wait(grantee)) {
        look_for_newcomer(worker, now_ns);
        uint64_t left_ns = slice_left_ns(worker, now_ns);
        alert_in_time(worker, left_ns);
        if (left_ns == 0) {
            fgw_grant_close(grantee);
        }
    }
    if (!fgw_grant_has(grantee)) {
        if (try_to_make_way(worker, now_ns)) {
            fgw_turn_leave(worker, has_pending(worker) || fgw_turn_is_off(worker), now_ns);
        }
        return;
    }
    if (is_running || has_pending(worker)) {
        worker->turn->idle_since_ns = 0;
        return;
    }
    if (worker->turn->idle_since_ns == 0) {
        worker->turn->idle_since_ns = now_ns;
    } else if (now_ns - worker->turn->idle_since_ns >= patience_ns(worker, now_ns)) {
        fgw_turn_leave(worker, false, now_ns);
    }
}

void fgw_turn_give_back(struct fgw_worker *worker)
{
    struct fgw_grantee *grantee = &worker->grantee;
    fgw_grant_wait_cancel(grantee);
    if (grantee->is_user && fgw_nr_running(worker) == 0) {
        fgw_grant_leave(grantee, false, fgw_clock_ns());
        worker->turn->idle_since_ns = 0;
    }
}

void fgw_turn_end_begin(struct fgw_worker *worker)
{
    if (fgw_turn_is_off(worker)) {
        fgw_withdraw_end(worker); /* no driver lets go of what stands still */
    }
    worker->turn->ended_busy_ns = worker->turn->busy_since_ns;
}

void fgw_turn_end(struct fgw_worker *worker)
{
    if (worker->turn->ended_busy_ns != 0) {
        fgw_grant_charge(&worker->grantee, worker->turn->ended_busy_ns, fgw_clock_ns());
        worker->turn->ended_busy_ns = 0;
    }
}

bool fgw_turn_may_change(const struct fgw_worker *worker)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    return grantee->is_user && fgw_nr_running(worker) == 0;
}
