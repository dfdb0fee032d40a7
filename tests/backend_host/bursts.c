/* What a worker is charged for bursts of work in its turn, for test_bursts.py: a control page, and two vGPUs on it. */
#include "page/account.h"
#include "page/bell.h"
#include "page/control.h"
#include "track/state.h"
#include "turn/charge.h"
#include "turn/moves.h"

static struct fgw_control *control;
static struct fgw_track track;
static struct fgw_turn turn;
static struct fgw_worker worker;
static struct fgw_grantee other, mate;

static bool attach(struct fgw_grantee *grantee, uint32_t vgpu, uint32_t slot)
{
    fgw_control_worker_assign(control, slot, 1, vgpu, 0);
    return fgw_grantee_attach(grantee, control, vgpu, slot);
}

/* The worker has its turn; `has_other`: another vGPU waits; `has_mate`: another worker of its vGPU has work on the
 * device. False: something went wrong. */
bool begin(const int *objects, uint64_t latency_ns, bool has_other, bool has_mate)
{
    const uint64_t now_ns = fgw_clock_ns();
    control = fgw_control_format(objects, UINT64_C(30000000), true);
    track = (struct fgw_track){.latency.soon.mean_ns = latency_ns, .last_finish_ns = now_ns};
    turn = (struct fgw_turn){.has_backlog = false};
    worker = (struct fgw_worker){.track = &track, .turn = &turn};
    const int mine = fgw_control_vgpu_take(control, 0), theirs = fgw_control_vgpu_take(control, 0);
    if (!attach(&worker.grantee, (uint32_t)mine, 0) || !attach(&other, (uint32_t)theirs, 1) ||
        !attach(&mate, (uint32_t)mine, 2) || !fgw_move_enter(&worker, now_ns)) {
        return false;
    }
    fgw_grant_set_running(&mate, has_mate);
    return !has_other || !fgw_grant_enter(&other, now_ns);
}

/* One submission to an idle device, whose end is seen so long after it began. Gives how long it took, which is less by
 * what came between, should this thread lose its CPU. */
uint64_t burst(uint64_t took_ns)
{
    track.begun_ns = fgw_clock_ns();
    track.last_finish_ns = track.begun_ns; /* no rest before it */
    track.nr_unfinished = 1;
    fgw_charge_started(&worker, true, track.begun_ns);
    while (fgw_clock_ns() < track.begun_ns + took_ns) {
    }
    track.nr_unfinished = 0;
    fgw_charge_finished(&worker, 1, track.begun_ns + took_ns);
    return track.begun_ns + took_ns - turn.patience.burst_since_ns;
}

/* The same, and just before its end the mate charges itself for a moment. */
uint64_t burst_beside(uint64_t took_ns, uint64_t moment_ns)
{
    track.begun_ns = fgw_clock_ns();
    track.last_finish_ns = track.begun_ns;
    track.nr_unfinished = 1;
    fgw_charge_started(&worker, true, track.begun_ns);
    const uint64_t end_ns = track.begun_ns + took_ns;
    while (fgw_clock_ns() < end_ns) {
    }
    fgw_grant_charge(&mate, end_ns - moment_ns, end_ns);
    track.nr_unfinished = 0;
    fgw_charge_finished(&worker, 1, end_ns);
    return end_ns - turn.patience.burst_since_ns;
}

/* The mate charges itself for so long from now on. */
void mate_charges(uint64_t took_ns)
{
    const uint64_t now_ns = fgw_clock_ns();
    fgw_grant_charge(&mate, now_ns, now_ns + took_ns);
}

void close_turn(void)
{
    fgw_grant_close(&worker.grantee);
}

uint64_t used_ns(void)
{
    return worker.grantee.account->used_ns;
}

uint64_t held_ns(void)
{
    return worker.grantee.account->held_ns;
}
