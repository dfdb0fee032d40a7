#include "turn/way.h"

#include "client/state.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "track/due.h"
#include "track/running.h"
#include "turn/state.h"

uint64_t fgw_way_left_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t end_ns = fgw_due_end_ns(worker);
    if (end_ns == 0 || now_ns > end_ns + FGW_LEAD_NS) {
        return UINT64_MAX;
    }
    return end_ns > now_ns ? end_ns - now_ns : 0;
}

bool fgw_way_has_ended(const struct fgw_worker *worker)
{
    return fgw_nr_running(worker) == 0;
}

uint64_t fgw_way_due_ns(const struct fgw_worker *worker)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    if (!fgw_turn_is_user(worker) || fgw_grant_has(grantee) || !fgw_grant_is_preemptive(grantee) ||
        fgw_nr_running(worker) == 0) {
        return 0;
    }
    const uint64_t end_ns = fgw_due_end_ns(worker);
    return end_ns > FGW_LEAD_NS ? end_ns - FGW_LEAD_NS : 0;
}
