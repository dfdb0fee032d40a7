/*
 * When this worker may submit GPU work.
 *
 * Alone on the device a worker keeps the grant while it works and gives it back when it has been idle for a moment;
 * asking costs a load and a compare, and a look at one cache line that nobody writes. As soon as another vGPU waits,
 * no more is queued than fits what is left of the slice (queue.c), and at its end the grant is closed, the queue runs
 * dry, and the grant is handed over.
 *
 * On a device that preempts the grant goes on a moment before the queue has run dry, so that the next one's first
 * kernel is there when the last one ends, and does not wait for a kernel that outlives its slice by far. Such a kernel
 * is taken off the device, where there is a way (way.h), and goes on in this one's next turn. It may run beside
 * the next one's at first, which costs nothing when that wants the device for a moment only.
 *
 * A critical vGPU's work goes beside the turns of its space (critical.h).
 *
 * Where the worker stands is its phase (phase.h). An idle holder keeps the grant for a while (patience.h), one that
 * others stand before may lose it early (newcomer.h), and all that is used is paid for (charge.h). Large launches go in
 * parts (parts.c), each of them a submission here. Copies may need no turn (beside.c).
 *
 * Wrong when: the end of what is queued is expected wrongly (due.h). The grant then goes on too late, or beside work
 * that others do not expect.
 */
#include "turn/turn.h"

#include "client/state.h"
#include "page/allowance.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/grantee.h"
#include "page/outlook.h"
#include "track/running.h"
#include "track/state.h"
#include "turn/beside.h"
#include "turn/change.h"
#include "turn/charge.h"
#include "turn/critical.h"
#include "turn/moves.h"
#include "turn/newcomer.h"
#include "turn/patience.h"
#include "turn/phase.h"
#include "turn/queue.h"
#include "turn/state.h"
#include "turn/watch.h"
#include "turn/ways.h"
#include "turn/yield.h"

/* So long before a slice ends the next one is woken: waking takes less, and it spins for longer (rest.c). */
#define FGW_ALERT_NS UINT64_C(200000)

void fgw_turn_know_device(struct fgw_worker *worker)
{
    if (fgw_grant_is_preemptive(&worker->grantee)) {
        fgw_ways_init(worker);
        fgw_beside_init(worker);
    }
}

/* The slice is over, or given up for a newcomer, and the next one is not this vGPU's too; or its limit is reached. */
static bool is_over(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    if (fgw_newcomer_hurries(worker, outlook) || fgw_critical_lets_in(worker, outlook)) {
        outlook->left_ns = 0;
    } else if (outlook->left_ns == 0 && outlook->allowed_ns != 0 &&
               fgw_grant_renew(&worker->grantee, outlook->now_ns)) {
        fgw_outlook_look_at_slice(outlook);
    }
    return outlook->left_ns == 0;
}

/* A look at the clock takes some 80 instructions: one of them is enough for a submission to an idle device. */
static uint64_t clock_unless(uint64_t now_ns)
{
    return now_ns != 0 ? now_ns : fgw_clock_ns();
}

/* Tells whether one more ends with the turn, which has an end. */
static bool fits_turn(struct fgw_worker *worker)
{
    worker->turn->shared_ns = fgw_clock_ns();
    struct fgw_outlook outlook = fgw_outlook_take(&worker->grantee, worker->turn->shared_ns);
    if (is_over(worker, &outlook)) {
        fgw_grant_close(&worker->grantee);
        return false;
    }
    return fgw_nr_running(worker) < fgw_queue_most(worker, outlook.left_ns);
}

/* Tells whether one more ends with what the limit leaves, where no turn is needed. */
static bool fits_limit(struct fgw_worker *worker)
{
    const uint64_t allowed_ns = fgw_allowance_left_ns(&worker->grantee, fgw_clock_ns());
    return allowed_ns != 0 && fgw_nr_running(worker) < fgw_queue_most(worker, allowed_ns);
}

bool fgw_turn_begin(struct fgw_worker *worker)
{
    if (worker->track->nr_unfinished >= FGW_MAX_UNFINISHED) {
        return false;
    }
    uint64_t now_ns = 0; /* not read */
    if (fgw_nr_running(worker) == 0) {
        now_ns = fgw_clock_ns();
        fgw_track_begins(worker, now_ns);
        fgw_patience_end_pause(worker, now_ns);
    }
    const bool needs_no_turn = !fgw_grant_has(&worker->grantee) && fgw_critical_goes(worker);
    if (!needs_no_turn && !fgw_grant_has(&worker->grantee) &&
        (fgw_turn_is_user(worker) || !fgw_move_enter(worker, clock_unless(now_ns)))) {
        worker->turn->shared_ns = fgw_clock_ns();
        return false;
    }
    if (!fgw_yield_is_over(worker)) {
        return false;
    }
    const bool is_limited = fgw_allowance_is_limited(&worker->grantee);
    if (needs_no_turn) {
        return is_limited ? fits_limit(worker) : worker->track->nr_unfinished < fgw_queue_most_unwaited(worker);
    }
    const bool others_wait = fgw_grant_others_wait(&worker->grantee);
    if (worker->turn->phase == FGW_PHASE_IDLE) {
        fgw_patience_end_hold(worker, others_wait, clock_unless(now_ns));
        fgw_phase_change(worker, FGW_PHASE_READY);
    }
    return others_wait || is_limited ? fits_turn(worker)
                                     : worker->track->nr_unfinished < fgw_queue_most_unwaited(worker);
}

/* Tells whether a grant is wanted for something: for a backlog that is gated it is not. */
static bool has_pending(const struct fgw_worker *worker)
{
    const struct fgw_turn *turn = worker->turn;
    return turn->is_wanted_behind ||
           (!turn->is_displaced && turn->has_backlog && fgw_queue_has_room(worker) && !turn->is_gated);
}

/* The next one is awake when the slice ends. Told once in a slice, and not when another slice is this vGPU's too. */
static void alert_in_time(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    if (outlook->left_ns < FGW_ALERT_NS && worker->turn->alerted_sequence != outlook->sequence &&
        !fgw_outlook_is_first(outlook)) {
        worker->turn->alerted_sequence = outlook->sequence;
        fgw_grant_alert_next(&worker->grantee);
    }
}

/* Work that is off the device is brought back when its turn has come. */
static void wait_off(struct fgw_worker *worker, uint64_t now_ns)
{
    const bool has = fgw_grant_has(&worker->grantee);
    if (!has && fgw_turn_is_user(worker)) {
        fgw_move_leave(worker, FGW_WORK_OFF, true, now_ns);
    }
    if (has || fgw_move_enter(worker, now_ns)) {
        fgw_ways_back(worker);
    } else if (fgw_turn_is_waiting(worker)) {
        fgw_grant_nudge(&worker->grantee, now_ns);
    }
}

/* A worker without its turn. */
static void wait_for_turn(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    if (!has_pending(worker)) {
        worker->turn->held_back_since_ns = 0;
        fgw_move_out(worker);
    } else if (outlook->allowed_ns == 0) {
        fgw_move_out(worker);
    }
    if (!(fgw_critical_is_welcome(worker) || fgw_ways_clear(worker, outlook)) && fgw_turn_is_waiting(worker)) {
        fgw_grant_nudge(&worker->grantee, outlook->now_ns);
    }
}

/* This turn has an end. */
static void watch_slice(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    fgw_newcomer_look(worker, outlook, fgw_ways_interrupt(worker));
    const bool is_last_look = is_over(worker, outlook);
    alert_in_time(worker, outlook);
    if (is_last_look) {
        fgw_grant_close(&worker->grantee);
        outlook->has = false;
    }
}

/* Tells whether the worker wants another turn behind this one. What is to be submitted beside the next one's wants
 * none: who is urgent would get the turn that it gives up, again and again, and nobody anything. */
static bool wants_another(const struct fgw_worker *worker, struct fgw_outlook *outlook, enum fgw_work work)
{
    return work == FGW_WORK_OFF || (has_pending(worker) && !fgw_critical_lets_in(worker, outlook));
}

/* The turn is over: the worker leaves as soon as others may have the device. */
static void end_turn(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    enum fgw_work work;
    if (worker->turn->phase == FGW_PHASE_RUNNING) {
        fgw_phase_change(worker, FGW_PHASE_DRAINING);
    }
    if (fgw_ways_try(worker, outlook, &work)) {
        fgw_move_leave(worker, work, wants_another(worker, outlook, work), outlook->now_ns);
    }
}

/* The turn is of no use, as nothing may be submitted. */
static void give_up(struct fgw_worker *worker, uint64_t now_ns)
{
    if (worker->turn->phase != FGW_PHASE_IDLE) {
        fgw_phase_change(worker, FGW_PHASE_READY);
    }
    fgw_move_give_back(worker, now_ns);
}

/* The turn goes on, with something to do or without. */
static void go_on(struct fgw_worker *worker, struct fgw_outlook *outlook, bool is_running)
{
    if (is_running) {
        fgw_phase_change(worker, FGW_PHASE_RUNNING);
    } else if (has_pending(worker)) {
        fgw_phase_change(worker, FGW_PHASE_READY);
    } else if (worker->turn->is_displaced) {
        give_up(worker, outlook->now_ns);
    } else if (worker->turn->phase != FGW_PHASE_IDLE) {
        fgw_patience_begin_hold(worker, outlook->now_ns);
    } else if (fgw_patience_is_over(worker, outlook)) {
        fgw_move_leave(worker, FGW_WORK_NONE, false, outlook->now_ns);
    }
}

void fgw_turn_poll(struct fgw_worker *worker, uint64_t now_ns)
{
    const bool is_running = fgw_nr_running(worker) != 0;
    fgw_watch_stall(worker, is_running);
    if (fgw_turn_is_off(worker)) {
        wait_off(worker, now_ns);
        return;
    }
    if (!is_running) {
        fgw_charge_lost(worker);
        if (fgw_turn_awaits_memory(worker)) {
            fgw_patience_end_pause(worker, now_ns); /* it wants something: waiting for memory is none */
        }
    }
    struct fgw_outlook outlook = fgw_outlook_take(&worker->grantee, now_ns);
    if (fgw_beside_poll(worker, &outlook)) {
        outlook = fgw_outlook_take(&worker->grantee, now_ns);
    }
    fgw_watch_work(worker, &outlook, is_running);
    if (!fgw_turn_is_user(worker)) {
        wait_for_turn(worker, &outlook);
        return;
    }
    if (outlook.has && outlook.is_timed) {
        watch_slice(worker, &outlook);
    }
    if (outlook.has) {
        go_on(worker, &outlook, is_running);
    } else {
        end_turn(worker, &outlook);
    }
}

void fgw_turn_give_back(struct fgw_worker *worker)
{
    fgw_move_out(worker);
    if (fgw_turn_may_change(worker)) {
        fgw_charge_lost(worker);
        fgw_move_give_back(worker, fgw_clock_ns());
    }
}

void fgw_turn_end(struct fgw_worker *worker)
{
    if (fgw_turn_is_off(worker)) {
        fgw_ways_back(worker);
    }
    fgw_charge_end_begin(worker);
}

bool fgw_turn_has_to_try(const struct fgw_worker *worker)
{
    return !fgw_turn_is_user(worker) && !fgw_turn_is_waiting(worker) && worker->turn->held_back_since_ns == 0 &&
           has_pending(worker);
}

uint64_t fgw_turn_held_back_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const bool wants = worker->turn->held_back_since_ns != 0 || worker->turn->phase == FGW_PHASE_OFF_OUT;
    const uint64_t back_ns = wants ? fgw_allowance_back_ns(&worker->grantee, now_ns) : 0;
    return back_ns != 0 ? back_ns - now_ns : UINT64_MAX;
}

bool fgw_turn_may_change(const struct fgw_worker *worker)
{
    return fgw_turn_is_user(worker) && fgw_nr_running(worker) == 0;
}
