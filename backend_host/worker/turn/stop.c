/* A persistent kernel is told to stop before others may have the device: beside their work its last blocks would wait
 * for the device's time slices, and so would the word to stop. */
#include "client/state.h"
#include "page/outlook.h"
#include "turn/change.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/way.h"

static bool interrupts(const struct fgw_worker *worker)
{
    return worker->turn->above->is_in_parts(worker);
}

static bool can_stop(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    if (!outlook->is_preemptive) {
        return false;
    }
    const uint64_t stopped_ns = worker->turn->above->stop(worker);
    return stopped_ns != 0 && outlook->now_ns < stopped_ns + FGW_STOP_NS;
}

static bool begin_stop(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    (void)outlook;
    fgw_phase_change(worker, FGW_PHASE_STOPPING);
    return true;
}

const struct fgw_way fgw_way_stop = {
    .work = FGW_WORK_NONE,
    .interrupts = interrupts,
    .can = can_stop,
    .begin = begin_stop,
    .is_done = fgw_way_has_ended,
};
