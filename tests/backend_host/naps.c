/* How long a worker sleeps while its work is on the device, for test_naps.py: a control page, two vGPUs on it, and a
 * ring that nothing comes into. The clock is a number here, which sleeping moves on: the worker learns how late its
 * naps are, and by the machine's clock it would learn when this process had no CPU. */
#include "calls/swap.h"
#include "loop/rest.h"
#include "page/bell.h"
#include "page/control.h"
#include "page/grant.h"
#include "page/space.h"
#include "parts/state.h"
#include "track/due.h"
#include "track/running.h"
#include "track/sync.h"
#include "turn/moves.h"
#include "turn/turn.h"

static struct fgw_control *control;
static struct fgw_track track;
static struct fgw_turn turn;
static struct fgw_slicing slicing;
static struct fgw_loop loop;
static struct fgw_worker worker;
static struct fgw_grantee other;
static struct fgv_ring_control ring;
static uint64_t clock_ns = UINT64_C(1000000000);
static uint64_t slept_ns, oversleep_ns;

uint64_t fgw_clock_ns(void)
{
    return clock_ns;
}

uint32_t fgw_grant_bell(const struct fgw_grantee *grantee)
{
    return atomic_load(&grantee->seat->bell);
}

void fgw_bell_ring(_Atomic uint32_t *bell)
{
    (void)bell;
}

void fgw_control_ring_bell(struct fgw_control *at)
{
    (void)at;
}

bool fgv_consumer_has(const struct fgv_consumer *consumer)
{
    (void)consumer;
    return false;
}

bool fgv_consumer_park_prepare(struct fgv_consumer *consumer)
{
    (void)consumer;
    return true;
}

void fgv_consumer_park_cancel(struct fgv_consumer *consumer)
{
    (void)consumer;
}

void fgv_consumer_park_sleep(struct fgv_consumer *consumer, uint64_t timeout_ns)
{
    (void)consumer;
    slept_ns = timeout_ns;
    clock_ns += timeout_ns + oversleep_ns;
}

void fgw_grant_sleep(struct fgw_grantee *grantee, uint32_t bell, void *kick, uint64_t timeout_ns)
{
    (void)grantee;
    (void)bell;
    (void)kick;
    slept_ns = timeout_ns;
    clock_ns += timeout_ns + oversleep_ns;
}

bool fgw_persistent_can_stop(const struct fgw_worker *at)
{
    (void)at;
    return false;
}

bool fgw_swap_is_at_work(const struct fgw_worker *at)
{
    (void)at;
    return false;
}

void fgw_sync_mark_all(struct fgw_worker *at)
{
    (void)at;
}

static bool attach(struct fgw_grantee *grantee, uint32_t vgpu, uint32_t slot)
{
    fgw_control_worker_assign(control, slot, 1, vgpu, 0);
    return fgw_grantee_attach(grantee, control, vgpu, slot);
}

/* The worker has its turn on a device that preempts or does not, and work there that begins now and should take as long
 * as what came before; another vGPU waits. Naps are late by so much. False: something went wrong. */
bool begin(const int *objects, bool is_preemptive, uint64_t work_ns, uint64_t late_ns)
{
    const uint64_t now_ns = fgw_clock_ns();
    control = fgw_control_format(objects, UINT64_C(30000000), is_preemptive);
    track = (struct fgw_track){.last_finish_ns = now_ns};
    turn = (struct fgw_turn){.has_backlog = false};
    loop = (struct fgw_loop){.consumer.control = &ring};
    worker = (struct fgw_worker){
        .track = &track, .turn = &turn, .slicing = &slicing, .loop = &loop, .region.wake = FGV_WAKE_FUTEX};
    fgw_rest_init(&worker, 2);
    const int mine = fgw_control_vgpu_take(control, 0), theirs = fgw_control_vgpu_take(control, 0);
    if (!attach(&worker.grantee, (uint32_t)mine, 0) || !attach(&other, (uint32_t)theirs, 1) ||
        !fgw_move_enter(&worker, now_ns)) {
        return false;
    }
    worker.slot = worker.grantee.slot;
    for (uint32_t i = 0; i < 16; i++) {
        fgw_due_note(&worker, 1, 0, now_ns + work_ns);
    }
    oversleep_ns = late_ns;
    fgv_habit_set(&loop.oversleep, late_ns, 0);
    track.nr_unfinished = 1;
    return !fgw_grant_enter(&other, now_ns);
}

/* Its slice is over: the grant goes on when its work ends, or shortly before. */
void end_slice(void)
{
    fgw_grant_close(&worker.grantee);
}

/* It has nothing on the device and waits at the gate of its space, whose critical vGPU, the other one, asks for this.
 */
void wait_at_gate(uint32_t split)
{
    fgw_grant_leave(&worker.grantee, false, clock_ns);
    turn.phase = FGW_PHASE_OUT;
    track.nr_unfinished = 0;
    turn.is_gated = true;
    turn.space_gate.since_ns = clock_ns;
    fgw_control_set_class(control, worker.grantee.number - 1, FGW_CLASS_BEST_EFFORT, 1);
    fgw_control_set_class(control, other.number - 1, FGW_CLASS_CRITICAL, 1);
    fgw_control_set_urgent(control, other.number - 1, true);
    fgw_space_tell_split(&other, split);
}

/* It has nothing on the device, and neither its turn nor a place among those who wait, but something to submit. */
void stand_out_with_a_backlog(bool is_held_back)
{
    fgw_grant_leave(&worker.grantee, false, clock_ns);
    turn.phase = FGW_PHASE_OUT;
    track.nr_unfinished = 0;
    turn.has_backlog = true;
    turn.held_back_since_ns = is_held_back ? clock_ns : 0;
}

/* It has nothing on the device and nothing to submit, on a host with so many cores, and is critical or not. */
void rest(bool is_critical, long nr_cpus)
{
    fgw_grant_leave(&worker.grantee, false, clock_ns);
    turn.phase = FGW_PHASE_OUT;
    track.nr_unfinished = 0;
    fgw_control_set_class(control, worker.grantee.number - 1, is_critical ? FGW_CLASS_CRITICAL : FGW_CLASS_FAIR, 0);
    fgw_rest_init(&worker, nr_cpus);
}

/* So long after the last record the next one comes. */
void gap(uint64_t ns)
{
    loop.quiet_since_ns = clock_ns;
    clock_ns += ns;
    fgw_rest_end(&worker);
}

/* How long it sleeps so long after its work began; 0: it spins. */
uint64_t nap_ns(uint64_t after_ns)
{
    slept_ns = 0;
    loop.quiet_since_ns = track.last_finish_ns;
    clock_ns = track.last_finish_ns + after_ns;
    fgw_rest(&worker, clock_ns, false);
    return slept_ns;
}
