/*
 * What the worker does while there is nothing to do: it spins for as long as spinning has paid lately, then it parks on
 * the ring, and, while its vGPU waits for the GPU, on that bell as well.
 */
#define _GNU_SOURCE
#include "loop/rest.h"

#include <sched.h>

#include "calls/swap.h"
#include "client/state.h"
#include "ivshmem/habit.h"
#include "ivshmem/region.h"
#include "ivshmem/ring.h"
#include "loop/state.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/layout.h"
#include "page/motion.h"
#include "page/outlook.h"
#include "page/room.h"
#include "page/sleep.h"
#include "page/space.h"
#include "parts/persistent.h"
#include "parts/state.h"
#include "track/due.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/moves.h"
#include "turn/round.h"
#include "turn/space_gate.h"
#include "turn/state.h"
#include "turn/turn.h"
#include "turn/way.h"
#include "turn/yield.h"

/* Work is looked at again after this fraction of the time it has taken, so that its end is seen late by less than one
 * in a hundred, while the driver is left alone for most of the time. */
#define POLL_DIVISOR 128
/* A worker with nothing else to watch looks at the ring so often before it looks at the clock, which takes longer. */
#define RING_LOOKS 4u
/* It spins for so long until it knows its guest, and then for between the other two. The least bridges the way from one
 * call to the next. Gaps of more than half of the most are slept through: waking late, by some 50 us, matters less. */
#define SPIN_NS     UINT64_C(20000)
#define SPIN_MIN_NS UINT64_C(5000)
#define SPIN_MAX_NS UINT64_C(200000)
/* Of a critical program, whose rounds are to be short, where there are cores: a core for each one that computes more
 * often than half as long. To wake up cost its rounds of 230 us on an H200 50 us in the median and 150 at the 95th
 * percentile (docs/lab/space.md). */
#define SPIN_CRITICAL_NS UINT64_C(10000000)
/* From then on whoever is ready to run on this core goes first, as with the guest's threads (response.c). */
#define YIELD_AFTER_NS UINT64_C(20000)
/* Where guest, worker and the device library's threads have no core each, that is sooner: one of them may be what is
 * waited for. */
#define YIELD_CROWDED_NS UINT64_C(3000)
#define CROWDED_CPUS     4
/* The end of work is watched for this long, as work is short as a rule: a nap would end later. */
#define BUSY_SPIN_NS UINT64_C(50000)
/* Around the time that work should end it is watched without a nap, for as long as naps are late and ends uncertain.
 * Until it is known how late naps are it is so much: a thread's timer slack, 50 us, and waking. */
#define OVERSLEEP_NS UINT64_C(60000)
/* It is watched for no longer than that, so that ends nobody knows cost no CPU; where cores are shared, no longer than
 * a nap is late. */
#define WATCH_MOST_NS         UINT64_C(500000)
#define WATCH_MOST_CROWDED_NS UINT64_C(60000)
/* Work that should end later may be other work than that before it. So naps last for a sixteenth of the time it has
 * taken, and an end that comes early is seen late by that at most. */
#define EARLY_DIVISOR 16
/* A nap is never shorter than that, since going to sleep takes as long, nor longer than this: so late is heard at worst
 * that work has ended. */
#define BUSY_NAP_MIN_NS UINT64_C(5000)
#define BUSY_NAP_MAX_NS UINT64_C(500000)
/* Nothing arrived for so long: the end of what was submitted is worth an event. A program that submits in a row, at 3
 * to 5 us each, does not pay for it. */
#define MARK_AFTER_NS UINT64_C(5000)
/* A ring that nobody rings a bell for is looked at after this fraction of the time that it has been empty, so that who
 * comes waits 3 % longer. The least is what a nap of Linux takes anyway. The most keeps an idle worker at 200 looks a
 * second. */
#define POLL_NAP_DIVISOR 32
#define POLL_NAP_MIN_NS  UINT64_C(50000)
#define POLL_NAP_MAX_NS  UINT64_C(5000000)
/* Where a kernel can be told to stop, who wants the GPU is seen so late. */
#define STOP_NAP_NS UINT64_C(100000)
/* A sleep that is shorter is not worth a bell: ringing it costs the guest an exit of its VM. */
#define BELL_WORTH_NS UINT64_C(100000)
/* A bell means that the grant is there, or as good as there: it rings 200 us before a slice ends, and work may go on a
 * little beyond that. */
#define ALERT_NS UINT64_C(500000)
/* Where memory may have to make room for others', or to move, that is heard so late. */
#define SWAP_NAP_NS UINT64_C(5000000)
/* A worker with nothing at all looks up this often: ten times a second cost no CPU time that one would see. */
#define PARK_NS UINT64_C(100000000)

void fgw_rest_init(struct fgw_worker *worker, long nr_cpus)
{
    worker->loop->spin_ns = SPIN_NS;
    const bool is_crowded = nr_cpus <= CROWDED_CPUS;
    worker->loop->spin_critical_ns = is_crowded ? SPIN_MAX_NS : SPIN_CRITICAL_NS;
    worker->loop->yield_after_ns = is_crowded ? YIELD_CROWDED_NS : YIELD_AFTER_NS;
    worker->loop->watch_most_ns = is_crowded ? WATCH_MOST_CROWDED_NS : WATCH_MOST_NS;
}

static uint64_t watch_ns(const struct fgw_worker *worker)
{
    const uint64_t late_ns =
        fgv_habit_most_ns(&worker->loop->oversleep, OVERSLEEP_NS) + fgv_habit_most_ns(&worker->track->due.error, 0);
    return late_ns < worker->loop->watch_most_ns ? late_ns : worker->loop->watch_most_ns;
}

/* A kernel is on the device that can be told to stop, or asked to give way. */
static bool can_stop(const struct fgw_worker *worker)
{
    return fgw_persistent_can_stop(worker) || fgw_yield_can_ask(worker);
}

/* It was told so a moment ago. */
static bool is_stopping(const struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t watch_most_ns = worker->loop->watch_most_ns;
    return (fgw_persistent_can_stop(worker) && now_ns < worker->slicing->parts.stopped_ns + watch_most_ns) ||
           now_ns < worker->turn->yields.asked_ns + watch_most_ns;
}

static bool is_due(const struct fgw_worker *worker, uint64_t due_ns, uint64_t now_ns)
{
    const uint64_t margin_ns = watch_ns(worker);
    if (is_stopping(worker, now_ns)) {
        return true;
    }
    return due_ns != 0 && now_ns + margin_ns >= due_ns && now_ns < due_ns + margin_ns;
}

uint64_t fgw_rest_next_poll_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    if (worker->loop->quiet_since_ns == 0 || is_due(worker, fgw_due_mark_ns(worker), now_ns)) {
        return 0;
    }
    return now_ns + (now_ns - worker->loop->quiet_since_ns) / POLL_DIVISOR;
}

static uint64_t bounded(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value < high ? value : high;
}

/* How long to sleep at most so as to be awake when the grant is to go on; 0: that is near, UINT64_MAX: not expected. */
static uint64_t nap_before_way_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t way_ns = fgw_way_due_ns(worker);
    const uint64_t awake_ns = now_ns + fgv_habit_most_ns(&worker->loop->oversleep, OVERSLEEP_NS);
    if (way_ns <= now_ns) {
        return UINT64_MAX;
    }
    return way_ns > awake_ns + BUSY_NAP_MIN_NS ? way_ns - awake_ns : 0;
}

/* How long to leave the device alone while it works; 0: something is due. */
static uint64_t busy_nap_ns(const struct fgw_worker *worker, uint64_t now_ns, uint64_t quiet_ns)
{
    uint64_t due_ns = fgw_due_mark_ns(worker);
    uint64_t most_ns = nap_before_way_ns(worker, now_ns);
    if (most_ns == 0 || is_due(worker, due_ns, now_ns)) {
        return 0;
    }
    most_ns = most_ns < BUSY_NAP_MAX_NS ? most_ns : BUSY_NAP_MAX_NS;
    if (due_ns > now_ns) {
        uint64_t before_ns = due_ns - watch_ns(worker) - now_ns;
        uint64_t early_ns = quiet_ns / EARLY_DIVISOR; /* it may be another one than those before it */
        return bounded(before_ns < early_ns ? before_ns : early_ns, BUSY_NAP_MIN_NS, most_ns);
    }
    return bounded(quiet_ns / POLL_DIVISOR, BUSY_NAP_MIN_NS, most_ns);
}

/* The bell of its vGPU brings news. */
static bool has_bell(const struct fgw_worker *worker)
{
    return fgw_turn_is_waiting(worker) || fgw_space_gate_is_awaited(worker);
}

/* Whether a record that arrives can end the sleep. A bell cannot while the sleep is on the grant's futex, and is not
 * worth what it costs the guest where the sleep is short; the guest may take its word for it back at any time. */
static bool is_kicked(const struct fgw_worker *worker, uint64_t timeout_ns, bool is_backlog_full)
{
    switch (worker->region.wake) {
    case FGV_WAKE_FUTEX:
        return true;
    case FGV_WAKE_BELL:
        return !is_backlog_full && !has_bell(worker) && timeout_ns >= BELL_WORTH_NS &&
               atomic_load_explicit(&worker->client->has_bell, memory_order_relaxed) == 1;
    default:
        return false;
    }
}

/* How long to sleep at most for what is on the device, or for a turn that it waits for; 0: not now. */
static uint64_t news_ns(struct fgw_worker *worker, uint64_t now_ns, uint64_t quiet_ns, bool is_backlog_full)
{
    if (fgw_turn_may_change(worker)) {
        return 0; /* about to give the grant back */
    }
    if (fgw_turn_is_off(worker)) {
        return FGW_GRANT_UNUSED_NS;
    }
    uint64_t poll_ns = PARK_NS;
    if (!is_kicked(worker, poll_ns, is_backlog_full)) {
        poll_ns = bounded(quiet_ns / POLL_NAP_DIVISOR, POLL_NAP_MIN_NS, POLL_NAP_MAX_NS);
    }
    if ((fgw_room_is_short(&worker->grantee) || fgw_motion(&worker->grantee) != FGW_MOTION_NONE ||
         fgw_sleep_is_wanted(&worker->grantee)) &&
        poll_ns > SWAP_NAP_NS) {
        poll_ns = SWAP_NAP_NS;
    }
    if (worker->track->nr_unfinished != 0 || worker->track->nr_beside != 0 || worker->track->behind.nr != 0 ||
        worker->loop->first_waiter || worker->loop->lacking.first || is_backlog_full || fgw_swap_is_at_work(worker) ||
        (worker->turn->is_gated && !fgw_space_gate_is_awaited(worker))) {
        uint64_t busy_ns = busy_nap_ns(worker, now_ns, quiet_ns);
        if (busy_ns > STOP_NAP_NS && can_stop(worker)) {
            busy_ns = STOP_NAP_NS;
        }
        return busy_ns < poll_ns ? busy_ns : poll_ns;
    }
    if (fgw_turn_is_waiting(worker)) {
        return FGW_GRANT_UNUSED_NS < poll_ns ? FGW_GRANT_UNUSED_NS : poll_ns;
    }
    return fgw_turn_has_to_try(worker) ? 0 : poll_ns;
}

/* How long to sleep when spinning is over; 0: not now. */
static uint64_t sleep_ns(struct fgw_worker *worker, uint64_t now_ns, uint64_t quiet_ns, bool is_backlog_full)
{
    const uint64_t for_ns = news_ns(worker, now_ns, quiet_ns, is_backlog_full);
    const uint64_t held_back_ns = fgw_turn_held_back_ns(worker, now_ns);
    const uint64_t round_ns = fgw_round_due_in_ns(worker, now_ns);
    const uint64_t due_ns = held_back_ns < round_ns ? held_back_ns : round_ns;
    return for_ns < due_ns ? for_ns : due_ns;
}

static void park(struct fgw_worker *worker, uint64_t timeout_ns, bool is_backlog_full)
{
    uint32_t bell = fgw_grant_bell(&worker->grantee);
    if (fgw_turn_is_waiting(worker) && fgw_move_enter(worker, fgw_clock_ns())) {
        return; /* it came before we knew the bell */
    }
    if (fgw_space_gate_is_awaited(worker) && fgw_space_gate_is_open(worker)) {
        return; /* likewise */
    }
    /* With a record in the ring that there is no room for, only the bell or the device can bring news. */
    const bool is_parked =
        !is_backlog_full && (worker->region.wake != FGV_WAKE_BELL || is_kicked(worker, timeout_ns, is_backlog_full));
    if (is_parked && !fgv_consumer_park_prepare(&worker->loop->consumer)) {
        return;
    }
    if (has_bell(worker) || !is_parked) {
        worker->loop->consumer.nr_parks++;
        void *kick =
            is_parked && worker->region.wake == FGV_WAKE_FUTEX ? &worker->loop->consumer.control->parked : NULL;
        fgw_grant_sleep(&worker->grantee, bell, kick, timeout_ns);
        fgv_consumer_park_cancel(&worker->loop->consumer);
    } else {
        fgv_consumer_park_sleep(&worker->loop->consumer, timeout_ns);
    }
    atomic_store_explicit(&worker->slot->nr_parks, worker->loop->consumer.nr_parks, memory_order_relaxed);
}

/* A moment of spinning. At first without the kernel's help; then whoever is ready to run on this core, the device
 * library's own threads say, goes first. With nothing else to look at, the ring is looked at more often than the clock
 * and all that goes with it. */
static void pass_time(const struct fgw_worker *worker, uint64_t quiet_ns, bool has_more_to_watch)
{
    if (quiet_ns >= worker->loop->yield_after_ns) {
        sched_yield();
        return;
    }
    uint32_t nr_looks = has_more_to_watch ? 1 : RING_LOOKS;
    do {
        __builtin_ia32_pause();
    } while (--nr_looks != 0 && !fgv_consumer_has(&worker->loop->consumer));
}

/* The GPU is about to be handed over to our vGPU, which waits for it. */
static bool is_alerted(struct fgw_worker *worker, uint64_t now_ns)
{
    uint32_t bell = fgw_grant_bell(&worker->grantee);
    if (bell != worker->loop->bell_seen) {
        worker->loop->bell_seen = bell;
        worker->loop->alerted_ns = now_ns;
    }
    return fgw_turn_is_waiting(worker) && now_ns - worker->loop->alerted_ns < ALERT_NS;
}

/* One round without news: spin, or sleep. */
void fgw_rest(struct fgw_worker *worker, uint64_t now_ns, bool is_backlog_full)
{
    if (worker->loop->quiet_since_ns == 0) {
        worker->loop->quiet_since_ns = now_ns;
    }
    uint64_t quiet_ns = now_ns - worker->loop->quiet_since_ns;
    if (is_alerted(worker, now_ns)) {
        pass_time(worker, quiet_ns, true);
        return;
    }
    bool is_busy = !fgw_turn_is_off(worker) &&
                   (worker->track->nr_unfinished != 0 || worker->track->nr_beside != 0 || worker->loop->first_waiter);
    if (is_busy && (quiet_ns >= MARK_AFTER_NS || fgw_turn_is_waiting(worker) || !fgw_grant_has(&worker->grantee))) {
        fgw_sync_mark_all(worker);
    }
    uint64_t spin_ns = is_busy && worker->loop->spin_ns < BUSY_SPIN_NS ? BUSY_SPIN_NS : worker->loop->spin_ns;
    uint64_t timeout_ns = quiet_ns < spin_ns ? 0 : sleep_ns(worker, now_ns, quiet_ns, is_backlog_full);
    if (timeout_ns == 0) {
        pass_time(worker, quiet_ns,
                  is_busy || is_backlog_full || worker->track->behind.nr != 0 || fgw_turn_is_waiting(worker));
        return;
    }
    uint64_t begun_ns = fgw_clock_ns();
    park(worker, timeout_ns, is_backlog_full);
    uint64_t slept_ns = fgw_clock_ns() - begun_ns;
    if (slept_ns > timeout_ns) {
        fgv_habit_note(&worker->loop->oversleep, slept_ns - timeout_ns);
    }
}

/* The spin adapts to the gaps between what the guest sends: after a gap that spinning can bridge, it will next time,
 * and a guest that fills chunks need not pay for waking us with each; after a longer one, it is given up sooner. */
void fgw_rest_end(struct fgw_worker *worker)
{
    if (worker->loop->quiet_since_ns == 0) {
        return;
    }
    const uint64_t most_ns = fgw_space_is_critical(&worker->grantee) ? worker->loop->spin_critical_ns : SPIN_MAX_NS;
    uint64_t gap_ns = fgw_clock_ns() - worker->loop->quiet_since_ns;
    uint64_t wanted_ns = gap_ns < most_ns / 2 ? gap_ns * 2 : worker->loop->spin_ns / 2;
    if (gap_ns >= most_ns / 2 || wanted_ns > worker->loop->spin_ns) {
        worker->loop->spin_ns = bounded(wanted_ns, SPIN_MIN_NS, most_ns);
    }
    worker->loop->quiet_since_ns = 0;
    worker->loop->next_poll_ns = 0;
}
