/* Work that goes on for long is left to run beside the next one's: the device gives time slices to both, and what each
 * has of it is charged to each as it goes. */
#include "client/state.h"
#include "page/outlook.h"
#include "turn/charge.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/way.h"

static bool can_share(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    (void)worker, (void)outlook;
    return true;
}

static void charge_so_far(struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    fgw_charge_so_far(worker, outlook->now_ns);
}

const struct fgw_way fgw_way_share = {.work = FGW_WORK_ON, .can = can_share, .charge = charge_so_far};
