#include "turn/watch.h"

#include "client/state.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/charge.h"
#include "turn/state.h"

/* Who waited so long for a turn has a client that sleeps: clients spin for no longer at one go. */
#define FGW_ROUSE_NS UINT64_C(1000000)

void fgw_watch_stall(const struct fgw_worker *worker, bool is_running)
{
    const uint64_t back_ns = worker->turn->away.back_ns, finish_ns = worker->track->last_finish_ns;
    const bool is_there = is_running && !fgw_turn_is_off(worker);
    fgw_grant_show_stall(&worker->grantee, !is_there ? 0 : finish_ns > back_ns ? finish_ns : back_ns);
}

/* Its first work is on the device: whoever waits for it and sleeps is awake when it ends. */
static void rouse_client(struct fgw_worker *worker)
{
    if (fgw_grant_take_waited_ns(&worker->grantee) >= FGW_ROUSE_NS) {
        worker->turn->above->rouse(worker);
    }
}

void fgw_watch_work(struct fgw_worker *worker, const struct fgw_outlook *outlook, bool is_running)
{
    if (is_running && worker->grantee.turn_waited_ns != 0) {
        rouse_client(worker);
    }
    if (is_running) {
        fgw_charge_if_due(worker, outlook->now_ns);
    }
    if (fgw_track_nr_open(worker) != 0 && (!outlook->has || outlook->others_wait)) {
        fgw_sync_mark_all(worker); /* its end is what others wait for, however busy the ring is */
    }
}
