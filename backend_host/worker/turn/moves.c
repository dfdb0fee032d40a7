#include "turn/moves.h"

#include "base/count.h"
#include "client/state.h"
#include "page/allowance.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "turn/change.h"
#include "turn/charge.h"
#include "turn/patience.h"
#include "turn/phase.h"
#include "turn/state.h"

static enum fgw_phase with_stand(const struct fgw_worker *worker, enum fgw_stand stand)
{
    return fgw_phase_of(stand, fgw_phase_work(worker->turn->phase));
}

/* Its vGPU has used up what its limit lets it have. */
static bool is_held_back(const struct fgw_worker *worker, uint64_t now_ns)
{
    return fgw_allowance_back_ns(&worker->grantee, now_ns) != 0;
}

/* Counts for how long that keeps it from a turn that it wants. */
static void note_held_back(struct fgw_worker *worker, bool is_held, uint64_t now_ns)
{
    uint64_t *since_ns = &worker->turn->held_back_since_ns;
    if (*since_ns != 0 && now_ns > *since_ns) {
        fgw_count(&worker->slot->limited_ns, now_ns - *since_ns);
    }
    *since_ns = is_held ? now_ns : 0;
}

bool fgw_move_enter(struct fgw_worker *worker, uint64_t now_ns)
{
    const bool is_held = is_held_back(worker, now_ns);
    note_held_back(worker, is_held, now_ns);
    if (is_held) {
        fgw_move_out(worker);
        return false;
    }
    const bool is_in = fgw_grant_enter(&worker->grantee, now_ns);
    if (is_in) {
        fgw_charge_end_tail(worker, now_ns);
    }
    fgw_phase_change(worker, with_stand(worker, is_in ? FGW_USES : FGW_WAITS));
    return is_in;
}

void fgw_move_off(struct fgw_worker *worker, uint64_t since_ns, uint64_t now_ns)
{
    if (is_held_back(worker, now_ns)) {
        fgw_move_out(worker);
        fgw_phase_change(worker, FGW_PHASE_OFF_OUT);
        return;
    }
    const bool is_in = fgw_grant_reenter(&worker->grantee, since_ns, now_ns);
    fgw_phase_change(worker, fgw_phase_of(is_in ? FGW_USES : FGW_WAITS, FGW_WORK_OFF));
}

void fgw_move_out(struct fgw_worker *worker)
{
    if (fgw_turn_is_waiting(worker)) {
        fgw_grant_wait_cancel(&worker->grantee);
        fgw_phase_change(worker, with_stand(worker, FGW_STANDS_OUT));
    }
}

static void leave(struct fgw_worker *worker, enum fgw_work work, bool wants_more, uint64_t now_ns)
{
    fgw_grant_leave(&worker->grantee, wants_more, now_ns);
    fgw_phase_change(worker, fgw_phase_of(wants_more ? FGW_WAITS : FGW_STANDS_OUT, work));
}

void fgw_move_leave(struct fgw_worker *worker, enum fgw_work work, bool wants_more, uint64_t now_ns)
{
    fgw_patience_end_hold(worker, fgw_grant_others_wait(&worker->grantee), now_ns);
    leave(worker, work, wants_more && !is_held_back(worker, now_ns), now_ns);
}

void fgw_move_give_back(struct fgw_worker *worker, uint64_t now_ns)
{
    leave(worker, FGW_WORK_NONE, false, now_ns);
}
