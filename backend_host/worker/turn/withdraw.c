#define _GNU_SOURCE
#include "turn/withdraw.h"

#include <dlfcn.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "client/state.h"
#include "page/account.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/grantee.h"
#include "page/outlook.h"
#include "track/due.h"
#include "track/running.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/state.h"
#include "turn/turn.h"

/* Work is left beside that of a next one that may want the device for a moment only, for so long, and is then taken off
 * the device: to take it off and bring it back takes as long. */
#define BESIDE_NS UINT64_C(1000000)
/* Taking it off is expected to take no more, however long it took last time: it takes 0.35 to 0.63 ms, and what the
 * holder is spared by it stays small (docs/lab/withdrawal.md). */
#define TOOK_MOST_NS UINT64_C(1000000)

void fgw_withdraw_init(struct fgw_worker *worker)
{
    /* There when the daemon had it loaded before libc. */
    *(void **)&worker->turn->withdrawal.set_off = dlsym(RTLD_DEFAULT, "fgv_channels_set_off");
}

/* This is as far as can be told. What is overdue by no more than a tail may be late by the next one's time slice alone.
 */
static bool goes_on_for(const struct fgw_worker *worker, uint64_t time_ns, uint64_t now_ns)
{
    const uint64_t end_ns = fgw_due_end_ns(worker);
    return end_ns == 0 || end_ns > now_ns + time_ns || now_ns > end_ns + FGW_TAIL_NS;
}

static bool is_long_enough_beside(const struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_grantee *grantee = &worker->grantee;
    const uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    const uint64_t beside_ns = fgw_grant_beside_ns(grantee, now_ns);
    return beside_ns > BESIDE_NS || (beside_ns != 0 && fgw_grant_holder_stays(grantee) &&
                                     goes_on_for(worker, slice_ns / FGW_LONG_DIVISOR, now_ns));
}

static bool is_in_the_way(const struct fgw_worker *worker, uint64_t now_ns)
{
    return worker->turn->withdrawal.set_off && fgw_nr_running(worker) != 0 && worker->turn->busy_since_ns != 0 &&
           worker->turn->busy_since_ns <= now_ns && is_long_enough_beside(worker, now_ns) &&
           goes_on_for(worker, BESIDE_NS, now_ns);
}

static void log_refusal(const char *what, const struct fgv_channels_answer *answer)
{
    fgw_log("%s: %s, status 0x%x of the driver", what, strerror(answer->error), answer->status);
}

/* The work still runs for some of that time and nobody can tell how much: half is charged. False: the driver refused.
 */
static bool take_off(struct fgw_worker *worker, uint64_t asked_ns)
{
    struct fgw_withdrawal *withdrawal = &worker->turn->withdrawal;
    const struct fgv_channels_answer answer = withdrawal->set_off(true);
    if (!fgv_channels_did(&answer)) {
        log_refusal("long kernels share the device by the driver's time slices: its channels cannot be held", &answer);
        withdrawal->set_off = NULL;
        return false;
    }
    withdrawal->since_ns = fgw_clock_ns();
    const uint64_t took_ns = withdrawal->since_ns - asked_ns;
    withdrawal->took_ns = took_ns < TOOK_MOST_NS ? took_ns : TOOK_MOST_NS;
    fgw_count(&worker->slot->nr_withdrawn, 1);
    fgw_grant_charge_half(&worker->grantee, asked_ns, withdrawal->since_ns);
    fgw_grant_set_running(&worker->grantee, false);
    worker->turn->busy_since_ns = worker->turn->tail_until_ns = 0;
    return true;
}

static uint64_t begin_to_take_off(struct fgw_worker *worker)
{
    fgw_sync_mark_all(worker);
    const uint64_t now_ns = fgw_clock_ns();
    fgw_turn_charge(worker, now_ns);
    return now_ns;
}

/* The holder pays the other half. It is charged later, when nothing tells any more that it had not all of it. */
bool fgw_withdraw_if_in_the_way(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_grantee *grantee = &worker->grantee;
    const struct fgw_withdrawal *withdrawal = &worker->turn->withdrawal;
    if (!is_in_the_way(worker, now_ns)) {
        return false;
    }
    const uint64_t asked_ns = begin_to_take_off(worker);
    fgw_grant_spare_holder(grantee, asked_ns + withdrawal->took_ns / 2);
    if (take_off(worker, asked_ns)) {
        const uint64_t beside_ns = fgw_grant_beside_ns(grantee, withdrawal->since_ns);
        fgw_grant_reenter(grantee, withdrawal->since_ns - beside_ns, withdrawal->since_ns);
    }
    return true;
}

bool fgw_withdraw_for_next(struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t slice_ns = fgw_grant_slice_ns(&worker->grantee);
    return worker->turn->withdrawal.set_off && fgw_grant_next_stays(&worker->grantee) &&
           goes_on_for(worker, slice_ns / FGW_LONG_DIVISOR, now_ns) && take_off(worker, begin_to_take_off(worker));
}

/* What was off the device did not run meanwhile, nor while it was brought back. */
static void go_on(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_withdrawal *withdrawal = &worker->turn->withdrawal;
    const uint64_t off_ns = now_ns - withdrawal->since_ns;
    withdrawal->since_ns = 0;
    withdrawal->back_ns = now_ns;
    fgw_track_measure_from(worker, worker->track->last_finish_ns + off_ns);
    worker->turn->burst_since_ns += off_ns;
    worker->turn->busy_since_ns = now_ns;
    fgw_grant_set_running(&worker->grantee, true);
}

void fgw_withdraw_end(struct fgw_worker *worker)
{
    const struct fgv_channels_answer answer = worker->turn->withdrawal.set_off(false);
    if (!fgv_channels_did(&answer)) {
        log_refusal("its channels cannot be let go", &answer);
        fgw_worker_end(worker, "the driver does not let its work go on");
    }
    go_on(worker, fgw_clock_ns());
}

void fgw_withdrawn_poll(struct fgw_worker *worker, uint64_t now_ns)
{
    if (worker->grantee.is_user && !fgw_grant_has(&worker->grantee)) {
        fgw_grant_leave(&worker->grantee, true, now_ns); /* taken away before it was used */
    }
    if (fgw_grant_enter(&worker->grantee, now_ns)) {
        fgw_withdraw_end(worker);
    } else {
        fgw_grant_nudge(&worker->grantee, now_ns);
    }
}
