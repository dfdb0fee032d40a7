#include "turn/charge.h"

#include "client/state.h"
#include "page/account.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "track/burst.h"
#include "track/latency.h"
#include "track/running.h"
#include "track/state.h"
#include "turn/change.h"
#include "turn/patience.h"
#include "turn/phase.h"
#include "turn/state.h"

/* A call of the driver that takes longer did more than submit, which takes some 50 us after a rest: it compiled, say.
 */
#define FGW_SUBMIT_MAX_NS UINT64_C(1000000)
/* Work that goes on is charged this often: a standing is late by that at most, a sixtieth of a slice of 30 ms. */
#define FGW_CHARGE_NS UINT64_C(500000)

static bool is_on_device(const struct fgw_worker *worker)
{
    const enum fgw_work work = fgw_phase_work(worker->turn->phase);
    return work == FGW_WORK_ON || work == FGW_WORK_PAID;
}

/* The phase is that of the same stand, with this work. */
static void set_work(struct fgw_worker *worker, enum fgw_work work)
{
    fgw_phase_change(worker, fgw_phase_of(fgw_phase_stand(worker->turn->phase), work));
}

/* Others of its vGPU are to know since when it has work on the device that is not charged, or that it has none. */
static void show(struct fgw_worker *worker, bool is_running)
{
    fgw_grant_show_uncharged(&worker->grantee, is_running ? worker->turn->charging.until_ns : 0);
    fgw_grant_set_running(&worker->grantee, is_running);
}

void fgw_charge_started(struct fgw_worker *worker, bool was_empty, uint64_t begun_ns)
{
    if (!was_empty && is_on_device(worker)) {
        return;
    }
    uint64_t now_ns = fgw_clock_ns();
    uint64_t from_ns = now_ns - begun_ns < FGW_SUBMIT_MAX_NS ? begun_ns : now_ns;
    worker->turn->charging.until_ns = from_ns + fgw_latency_ns(worker, from_ns);
    if (!is_on_device(worker)) {
        set_work(worker, FGW_WORK_ON);
    }
    show(worker, true);
    fgw_track_measure_from(worker, from_ns);
    fgw_patience_begin_burst(worker, from_ns);
}

void fgw_charge_so_far(struct fgw_worker *worker, uint64_t now_ns)
{
    if (now_ns < worker->turn->charging.until_ns) {
        return;
    }
    if (fgw_phase_work(worker->turn->phase) == FGW_WORK_PAID) { /* a tail that is longer than it should be */
        set_work(worker, FGW_WORK_ON);
    }
    show(worker, true);
    fgw_grant_charge(&worker->grantee, worker->turn->charging.until_ns, now_ns);
    worker->turn->charging.until_ns = now_ns;
    fgw_grant_show_uncharged(&worker->grantee, now_ns);
}

void fgw_charge_if_due(struct fgw_worker *worker, uint64_t now_ns)
{
    if (is_on_device(worker) && now_ns - worker->turn->charging.until_ns > FGW_CHARGE_NS) {
        fgw_charge_so_far(worker, now_ns);
    }
}

/* What it takes to get work to the device and to hear of its end is no use of the device, but in a turn it keeps the
 * device from others. What it takes longer at the beginning of a turn is the device's switch, and nobody's. */
static void hold_for_latency(struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    if (fgw_grant_has(grantee) && fgw_grant_others_wait(grantee) && fgw_grant_runs_alone(grantee)) {
        const uint64_t latency_ns = worker->track->latency.soon.mean_ns;
        const uint64_t burst_ns = now_ns - worker->turn->patience.burst_since_ns;
        fgw_grant_charge_hold(&worker->grantee, latency_ns < burst_ns ? latency_ns : burst_ns);
    }
}

void fgw_charge_finished(struct fgw_worker *worker, uint32_t nr, uint64_t now_ns)
{
    if (nr != 0 && !is_on_device(worker)) {
        worker->turn->charging.until_ns = worker->track->polled_ns; /* it began and ended since nothing ran */
        set_work(worker, FGW_WORK_ON);
    }
    if (is_on_device(worker) && fgw_nr_running(worker) == 0) {
        fgw_latency_finish(worker, now_ns);
        fgw_charge_so_far(worker, now_ns);
        hold_for_latency(worker, now_ns);
        show(worker, false);
        set_work(worker, FGW_WORK_NONE);
        fgw_patience_end_burst(worker, now_ns);
        fgw_burst_pause(&worker->turn->bursts,
                        atomic_load_explicit(&worker->grantee.slot->gpu_ns, memory_order_relaxed), now_ns);
    }
}

void fgw_charge_lost(struct fgw_worker *worker)
{
    if (is_on_device(worker)) {
        show(worker, false);
        set_work(worker, FGW_WORK_NONE);
    }
}

void fgw_charge_tail(struct fgw_worker *worker, uint64_t left_ns, uint64_t now_ns)
{
    fgw_grant_charge(&worker->grantee, now_ns, now_ns + left_ns);
    show(worker, false);
    worker->turn->charging.until_ns = now_ns + FGW_TAIL_NS;
}

void fgw_charge_end_tail(struct fgw_worker *worker, uint64_t now_ns)
{
    if (fgw_phase_work(worker->turn->phase) == FGW_WORK_PAID && worker->turn->charging.until_ns > now_ns) {
        worker->turn->charging.until_ns = now_ns;
        show(worker, true);
    }
}

void fgw_charge_off(struct fgw_worker *worker, uint64_t asked_ns, uint64_t off_ns)
{
    fgw_grant_charge_half(&worker->grantee, asked_ns, off_ns);
    show(worker, false);
}

void fgw_charge_back(struct fgw_worker *worker, uint64_t now_ns)
{
    worker->turn->charging.until_ns = now_ns;
    set_work(worker, FGW_WORK_ON);
    show(worker, true);
}

void fgw_charge_end_begin(struct fgw_worker *worker)
{
    worker->turn->charging.ended_ns = is_on_device(worker) ? worker->turn->charging.until_ns : 0;
}

void fgw_charge_end(struct fgw_worker *worker)
{
    if (worker->turn->charging.ended_ns != 0) {
        fgw_grant_charge(&worker->grantee, worker->turn->charging.ended_ns, fgw_clock_ns());
        worker->turn->charging.ended_ns = 0;
    }
}
