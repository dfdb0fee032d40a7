/* The next one's work is there before this worker's ends. What is left is paid for now, as it will be short. */
#include "client/state.h"
#include "page/outlook.h"
#include "turn/charge.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/way.h"

static bool can_leave_tail(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return fgw_way_left_ns(worker, outlook->now_ns) <= FGW_LEAD_NS;
}

static void charge_tail(struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    fgw_charge_so_far(worker, outlook->now_ns);
    fgw_charge_tail(worker, fgw_way_left_ns(worker, outlook->now_ns), outlook->now_ns);
}

const struct fgw_way fgw_way_tail = {.work = FGW_WORK_PAID, .can = can_leave_tail, .charge = charge_tail};
