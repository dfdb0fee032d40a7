/* What is on the device is let end, where that lasts for no more than half a slice, or no other work runs beside it. */
#include "client/state.h"
#include "page/outlook.h"
#include "turn/change.h"
#include "turn/newcomer.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/way.h"

static bool can_drain(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    if (!outlook->is_preemptive) {
        return true;
    }
    const uint64_t left_ns = fgw_way_left_ns(worker, outlook->now_ns);
    return left_ns > FGW_LEAD_NS && left_ns <= outlook->slice_ns / FGW_LONG_DIVISOR &&
           !fgw_newcomer_hurries(worker, outlook);
}

static bool begin_drain(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    (void)outlook;
    fgw_phase_change(worker, FGW_PHASE_DRAINING);
    return true;
}

const struct fgw_way fgw_way_drain = {
    .work = FGW_WORK_NONE,
    .can = can_drain,
    .begin = begin_drain,
    .is_done = fgw_way_has_ended,
};
