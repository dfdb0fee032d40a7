#include "turn/change.h"

#include <stdlib.h>

#include "base/count.h"
#include "base/log.h"
#include "client/state.h"
#include "page/grant.h"
#include "turn/phase.h"
#include "turn/state.h"

static void refuse(struct fgw_worker *worker, enum fgw_phase to)
{
#ifdef FGW_DEBUG
    fgw_log("no way leads from the phase %s to %s", fgw_phase_word(worker->turn->phase), fgw_phase_word(to));
    abort();
#else
    (void)to;
    fgw_count(&worker->slot->nr_bad_phases, 1);
#endif
}

void fgw_phase_change(struct fgw_worker *worker, enum fgw_phase to)
{
    const enum fgw_phase from = worker->turn->phase;
    if (from == to) {
        return;
    }
    if (!fgw_phase_may_follow(from, to)) {
        refuse(worker, to);
    }
    worker->turn->phase = to;
    fgw_grant_show_phase(&worker->grantee, to);
}
