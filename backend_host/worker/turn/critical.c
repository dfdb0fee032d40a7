/* See critical.h. The way off the device that such work goes is none: it stays, beside the next one's. */
#include "turn/critical.h"

#include "client/state.h"
#include "page/allowance.h"
#include "page/bell.h"
#include "page/space.h"
#include "turn/charge.h"
#include "turn/moves.h"
#include "turn/phase.h"
#include "turn/way.h"

/* Beyond what it may use ahead of its turns it takes turns as all do. */
static bool is_ahead(const struct fgw_worker *worker)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    return fgw_space_is_critical(grantee) && fgw_space_is_urgent(grantee->control, grantee->number);
}

bool fgw_critical_is_welcome(const struct fgw_worker *worker)
{
    return is_ahead(worker) && fgw_space_has_grant(&worker->grantee);
}

bool fgw_critical_goes(struct fgw_worker *worker)
{
    if (fgw_turn_is_user(worker) || !fgw_critical_is_welcome(worker) ||
        fgw_allowance_back_ns(&worker->grantee, fgw_clock_ns()) != 0) {
        return false;
    }
    fgw_move_out(worker);
    return true;
}

bool fgw_critical_lets_in(const struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return outlook->others_wait && is_ahead(worker) && fgw_outlook_next_is_companion(outlook);
}

static bool can_stay(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return fgw_critical_lets_in(worker, outlook);
}

static void charge_so_far(struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    fgw_charge_so_far(worker, outlook->now_ns);
}

const struct fgw_way fgw_way_critical = {.work = FGW_WORK_ON, .can = can_stay, .charge = charge_so_far};
