/*
 * Taking this worker's own work off the device, and bringing it back: for kernels that outlive their turn and cannot go
 * in parts. See backend_host/channels for how, turn.c for whose turn it is.
 *
 * At the end of its turn such work is withdrawn when the next one will use all of its own, judging by its last. Beside
 * such work it might have the device at once, or not for a millisecond, and nobody could tell who is to pay
 * (docs/lab/withdrawal.md). Where the next one may want the device for a moment only, the work runs on beside it, and
 * is withdrawn when that uses the device for longer. What bringing it back takes is charged to nobody.
 *
 * Work that outlives its turn because it was expected to end soon is withdrawn as well once its vGPU has used up its
 * part, also where nobody else wants the device.
 *
 * While it is off the worker waits for its turn like all whose work is not on the device, and makes no call that might
 * wait for what stands still.
 *
 * Wrong when the driver has changed its mind: an answer that is not as wished ends it for this worker.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "channels/channels.h"
#include "client/state.h"
#include "page/account.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "track/due.h"
#include "track/running.h"
#include "track/sync.h"
#include "turn/charge.h"
#include "turn/newcomer.h"
#include "turn/phase.h"
#include "turn/state.h"
#include "turn/way.h"

/* Work is left beside that of a next one that may want the device for a moment only, for so long, and is then taken off
 * the device: to take it off and bring it back takes as long. */
#define BESIDE_NS UINT64_C(1000000)
/* Taking it off is expected to take no more, however long it took last time: it takes 0.35 to 0.63 ms, and what the
 * holder is spared by it stays small (docs/lab/withdrawal.md). */
#define TOOK_MOST_NS UINT64_C(1000000)

static void find_channels(struct fgw_worker *worker)
{
    /* There when the daemon had it loaded before libc. */
    *(void **)&worker->turn->withdrawal.set_off = dlsym(RTLD_DEFAULT, "fgv_channels_set_off");
}

static bool has_channels(const struct fgw_worker *worker)
{
    return worker->turn->withdrawal.set_off != NULL;
}

/* This is as far as can be told. What is overdue by no more than a tail may be late by the next one's time slice alone.
 */
static bool goes_on_for(const struct fgw_worker *worker, uint64_t time_ns, uint64_t now_ns)
{
    const uint64_t end_ns = fgw_due_end_ns(worker);
    return end_ns == 0 || end_ns > now_ns + time_ns || now_ns > end_ns + FGW_TAIL_NS;
}

static bool can_withdraw(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return has_channels(worker) && !fgw_newcomer_hurries(worker, outlook) &&
           (outlook->allowed_ns == 0 || fgw_outlook_next_stays(outlook)) &&
           goes_on_for(worker, outlook->slice_ns / FGW_LONG_DIVISOR, outlook->now_ns);
}

static bool is_long_enough_beside(const struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    const uint64_t beside_ns = fgw_grant_beside_ns(grantee, outlook->now_ns);
    return beside_ns > BESIDE_NS || (beside_ns != 0 && fgw_grant_holder_stays(grantee) &&
                                     goes_on_for(worker, outlook->slice_ns / FGW_LONG_DIVISOR, outlook->now_ns));
}

/* It has to go: it keeps the holder off the device, or its vGPU has used up its part, whoever has the device. What is
 * paid for in advance is not in the way yet. */
static bool is_in_the_way(const struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    return has_channels(worker) && fgw_nr_running(worker) != 0 && worker->turn->charging.until_ns <= outlook->now_ns &&
           (outlook->allowed_ns == 0 || is_long_enough_beside(worker, outlook)) &&
           goes_on_for(worker, BESIDE_NS, outlook->now_ns);
}

static void log_refusal(const char *what, const struct fgv_channels_answer *answer)
{
    fgw_log("%s: %s, status 0x%x of the driver", what, strerror(answer->error), answer->status);
}

/* In another's turn the holder pays the other half of the time that this takes. It is charged later, when nothing tells
 * any more that it had not all of it. */
static bool take_off(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    (void)outlook;
    struct fgw_withdrawal *withdrawal = &worker->turn->withdrawal;
    fgw_sync_mark_all(worker);
    withdrawal->asked_ns = fgw_clock_ns();
    fgw_charge_so_far(worker, withdrawal->asked_ns);
    if (!fgw_turn_is_user(worker)) {
        fgw_grant_spare_holder(&worker->grantee, withdrawal->asked_ns + withdrawal->took_ns / 2);
    }
    const struct fgv_channels_answer answer = withdrawal->set_off(true);
    if (!fgv_channels_did(&answer)) {
        log_refusal("long kernels share the device by the driver's time slices: its channels cannot be held", &answer);
        withdrawal->set_off = NULL;
        return false;
    }
    fgw_count(&worker->slot->nr_withdrawn, 1);
    return true;
}

static void charge_half(struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    (void)outlook;
    struct fgw_withdrawal *withdrawal = &worker->turn->withdrawal;
    const uint64_t off_ns = worker->turn->away.since_ns, took_ns = off_ns - withdrawal->asked_ns;
    withdrawal->took_ns = took_ns < TOOK_MOST_NS ? took_ns : TOOK_MOST_NS;
    fgw_charge_off(worker, withdrawal->asked_ns, off_ns);
}

/* When the driver does not let it go on, the worker ends. */
static void let_on(struct fgw_worker *worker)
{
    const struct fgv_channels_answer answer = worker->turn->withdrawal.set_off(false);
    if (!fgv_channels_did(&answer)) {
        log_refusal("its channels cannot be let go", &answer);
        fgw_worker_end(worker, "the driver does not let its work go on");
    }
}

static void renew(struct fgw_worker *worker, bool is_over)
{
    (void)worker;
    fgv_channels_renew_fn renew_channels;
    *(void **)&renew_channels = dlsym(RTLD_DEFAULT, "fgv_channels_renew");
    if (renew_channels) {
        renew_channels(is_over);
    }
}

const struct fgw_way fgw_way_withdraw = {
    .work = FGW_WORK_OFF,
    .init = find_channels,
    .interrupts = has_channels,
    .can = can_withdraw,
    .is_due = is_in_the_way,
    .begin = take_off,
    .charge = charge_half,
    .back = let_on,
    .renew = renew,
};
