#include "turn/ways.h"

#include <stddef.h>

#include "client/state.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "track/running.h"
#include "track/state.h"
#include "turn/charge.h"
#include "turn/moves.h"
#include "turn/patience.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/way.h"

static const struct fgw_way *const ways[] = {
#define FGW_WAY(name) &fgw_way_##name,
    FGW_WAYS(FGW_WAY)
#undef FGW_WAY
};

#define NR_WAYS (sizeof(ways) / sizeof(ways[0]))

void fgw_ways_init(struct fgw_worker *worker)
{
    for (size_t i = 0; i < NR_WAYS; i++) {
        if (ways[i]->init) {
            ways[i]->init(worker);
        }
    }
}

void fgw_ways_renew(struct fgw_worker *worker, bool is_over)
{
    for (size_t i = 0; i < NR_WAYS; i++) {
        if (ways[i]->renew) {
            ways[i]->renew(worker, is_over);
        }
    }
}

bool fgw_ways_interrupt(const struct fgw_worker *worker)
{
    for (size_t i = 0; i < NR_WAYS; i++) {
        if (ways[i]->interrupts && ways[i]->interrupts(worker)) {
            return true;
        }
    }
    return false;
}

static bool begin(const struct fgw_way *way, struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return !way->begin || way->begin(worker, outlook);
}

static void charge(const struct fgw_way *way, struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    if (way->work == FGW_WORK_OFF) {
        worker->turn->away.by = way;
        worker->turn->away.since_ns = fgw_clock_ns();
    }
    if (way->charge) {
        way->charge(worker, outlook);
    }
}

bool fgw_ways_try(struct fgw_worker *worker, struct fgw_outlook *outlook, enum fgw_work *work)
{
    *work = FGW_WORK_NONE;
    if (fgw_nr_running(worker) == 0) {
        return true;
    }
    for (size_t i = 0; i < NR_WAYS; i++) {
        const struct fgw_way *way = ways[i];
        if (way->can(worker, outlook) && begin(way, worker, outlook)) {
            if (way->is_done && !way->is_done(worker)) {
                return false;
            }
            charge(way, worker, outlook);
            *work = way->work;
            return true;
        }
    }
    return false;
}

/* Who had to leave the holder's way has wanted the device since that one's turn began. */
bool fgw_ways_clear(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    for (size_t i = 0; i < NR_WAYS; i++) {
        const struct fgw_way *way = ways[i];
        if (way->is_due && way->is_due(worker, outlook)) {
            if (begin(way, worker, outlook)) {
                charge(way, worker, outlook);
                const uint64_t now_ns = worker->turn->away.since_ns;
                fgw_move_off(worker, now_ns - fgw_grant_beside_ns(&worker->grantee, now_ns), now_ns);
            }
            return true;
        }
    }
    return false;
}

/* What was off the device did not run meanwhile, nor while it was brought back. */
void fgw_ways_back(struct fgw_worker *worker)
{
    struct fgw_away *away = &worker->turn->away;
    away->by->back(worker);
    away->back_ns = fgw_clock_ns();
    const uint64_t off_ns = away->back_ns - away->since_ns;
    fgw_track_measure_from(worker, worker->track->last_finish_ns + off_ns);
    fgw_patience_begin_burst(worker, worker->turn->patience.burst_since_ns + off_ns);
    fgw_charge_back(worker, away->back_ns);
}
