#include "turn/patience.h"

#include "base/count.h"
#include "client/state.h"
#include "ivshmem/habit.h"
#include "page/account.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "track/burst.h"
#include "track/due.h"
#include "track/state.h"
#include "turn/change.h"
#include "turn/phase.h"
#include "turn/state.h"

/* An idle holder keeps the grant for so long while nobody waits: a program that submits again by then need not ask for
 * it. Who comes meanwhile makes it the next one. */
#define FGW_IDLE_NS UINT64_C(100000)
/* It keeps it for so long while somebody waits and no more would pay: a program's way from one call to its next, and
 * little beside the 150 us of a hand-over. */
#define FGW_IDLE_CONTENDED_NS UINT64_C(20000)
/* A pause of more than a quarter of the turn is sleep: the device would stand still for most of it. */
#define FGW_PAUSE_TURN_DIVISOR 4

/* How long a turn lasts: a slice, but at least what is in flight at one go where that cannot be taken back. */
static uint64_t turn_ns(const struct fgw_worker *worker)
{
    const uint64_t slice_ns = fgw_grant_slice_ns(&worker->grantee);
    const uint64_t burst_ns = worker->turn->patience.burst_ns;
    return fgw_grant_is_preemptive(&worker->grantee) || burst_ns < slice_ns ? slice_ns : burst_ns;
}

void fgw_patience_begin_burst(struct fgw_worker *worker, uint64_t from_ns)
{
    worker->turn->patience.burst_since_ns = from_ns;
}

/* The CPU's part of a row of copies is none of its habits. */
void fgw_patience_end_burst(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_patience *patience = &worker->turn->patience;
    patience->pause_since_ns = now_ns;
    if (!worker->track->is_last_copy) {
        patience->burst_ns = fgw_mean_with(patience->burst_ns, now_ns - patience->burst_since_ns);
    }
}

/* Whoever decides how long turns last reads it in the slot. */
static void show_bursts(const struct fgw_worker *worker)
{
    const struct fgw_burst_view view = fgw_burst_view(&worker->turn->bursts);
    atomic_store_explicit(&worker->grantee.slot->burst_ns, view.percentile_ns, memory_order_relaxed);
    atomic_store_explicit(&worker->grantee.slot->last_burst_ns, view.last_ns, memory_order_relaxed);
    atomic_store_explicit(&worker->grantee.slot->burst_gap_ns, view.gap_ns, memory_order_relaxed);
}

void fgw_patience_end_pause(struct fgw_worker *worker, uint64_t now_ns)
{
    if (fgw_burst_resume(&worker->turn->bursts, FGW_SWITCH_NS, now_ns)) {
        fgw_count(&worker->grantee.slot->nr_bursts, 1);
        show_bursts(worker);
    }
    struct fgw_patience *patience = &worker->turn->patience;
    if (patience->pause_since_ns == 0) {
        return;
    }
    const uint64_t most_ns = turn_ns(worker);
    const uint64_t pause_ns = now_ns - patience->pause_since_ns;
    if (!worker->track->is_last_copy) {
        fgv_habit_note(&patience->pause, pause_ns < most_ns ? pause_ns : most_ns); /* a long sleep is soon forgotten */
    }
    patience->pause_since_ns = 0;
}

void fgw_patience_forget_pause(struct fgw_worker *worker)
{
    worker->turn->patience.pause_since_ns = 0;
}

void fgw_patience_begin_hold(struct fgw_worker *worker, uint64_t now_ns)
{
    worker->turn->patience.idle_since_ns = now_ns;
    fgw_phase_change(worker, FGW_PHASE_IDLE);
}

void fgw_patience_end_hold(struct fgw_worker *worker, bool others_wait, uint64_t now_ns)
{
    if (worker->turn->phase == FGW_PHASE_IDLE && others_wait) {
        fgw_grant_charge_hold(&worker->grantee, now_ns - worker->turn->patience.idle_since_ns);
    }
}

uint64_t fgw_patience_ns(const struct fgw_patience_view *view)
{
    if (!view->others_wait) {
        return FGW_IDLE_NS;
    }
    if (view->pause_ns == 0 || view->pause_ns > view->burst_ns ||
        view->pause_ns > view->turn_ns / FGW_PAUSE_TURN_DIVISOR) {
        return FGW_IDLE_CONTENDED_NS;
    }
    const uint64_t most_ns = view->pause_ns + view->spread_ns;
    if (most_ns <= FGW_SWITCH_NS) {
        return FGW_SWITCH_NS; /* that long is never worse than twice the best */
    }
    if (view->had_ns >= view->slice_ns / FGW_MIN_SLICE_DIVISOR && !view->is_first) {
        return FGW_IDLE_CONTENDED_NS;
    }
    return most_ns;
}

bool fgw_patience_is_over(const struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    const struct fgw_patience *patience = &worker->turn->patience;
    const bool is_young =
        outlook->had_ns < outlook->slice_ns / FGW_MIN_SLICE_DIVISOR; /* where it stands does not matter */
    const struct fgw_patience_view view = {
        .pause_ns = fgv_habit_mean_ns(&patience->pause),
        .spread_ns = fgv_habit_spread_ns(&patience->pause),
        .burst_ns = patience->burst_ns,
        .slice_ns = outlook->slice_ns,
        .turn_ns = turn_ns(worker),
        .had_ns = outlook->had_ns,
        .others_wait = outlook->others_wait,
        .is_first = outlook->others_wait && !is_young && fgw_outlook_is_first(outlook),
    };
    return outlook->now_ns - patience->idle_since_ns >= fgw_patience_ns(&view);
}
