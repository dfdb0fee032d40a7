#include "turn/patience.h"

#include "client/state.h"
#include "ivshmem/habit.h"
#include "page/account.h"
#include "page/grant.h"
#include "page/outlook.h"
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
/* A pause of more than a quarter of the slice is sleep: the device would stand still for most of the turn. */
#define FGW_PAUSE_SLICE_DIVISOR 4

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

void fgw_patience_end_pause(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_patience *patience = &worker->turn->patience;
    if (patience->pause_since_ns == 0) {
        return;
    }
    const uint64_t slice_ns = fgw_grant_slice_ns(&worker->grantee);
    const uint64_t pause_ns = now_ns - patience->pause_since_ns;
    if (!worker->track->is_last_copy) {
        fgv_habit_note(&patience->pause,
                       pause_ns < slice_ns ? pause_ns : slice_ns); /* a long sleep is soon forgotten */
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

/* Tells how long it keeps what others want. */
static uint64_t patience_ns(const struct fgw_patience *patience, struct fgw_outlook *outlook)
{
    if (!outlook->others_wait) {
        return FGW_IDLE_NS;
    }
    const uint64_t slice_ns = outlook->slice_ns;
    const uint64_t pause_ns = fgv_habit_mean_ns(&patience->pause);
    if (pause_ns == 0 || pause_ns > patience->burst_ns || pause_ns > slice_ns / FGW_PAUSE_SLICE_DIVISOR) {
        return FGW_IDLE_CONTENDED_NS;
    }
    const uint64_t most_ns = pause_ns + fgv_habit_spread_ns(&patience->pause);
    if (most_ns <= FGW_SWITCH_NS) {
        return FGW_SWITCH_NS; /* that long is never worse than twice the best */
    }
    if (slice_ns - outlook->left_ns >= slice_ns / FGW_MIN_SLICE_DIVISOR && !fgw_outlook_is_first(outlook)) {
        return FGW_IDLE_CONTENDED_NS;
    }
    return most_ns;
}

bool fgw_patience_is_over(const struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    const struct fgw_patience *patience = &worker->turn->patience;
    return outlook->now_ns - patience->idle_since_ns >= patience_ns(patience, outlook);
}
