#define _GNU_SOURCE
#include "worker.h"

#include <dlfcn.h>
#include <string.h>

/* Beside the work of a next one that may want the device for a moment only, for so long, then off the device: to take
 * it off and bring it back takes as long. */
#define BESIDE_NS    UINT64_C(1000000)
#define TOOK_MOST_NS UINT64_C(1000000) /* what taking it off is expected to take */
#define LONG_PART    2u /* of the slice: what goes on for longer is not left beside one that will use all of its own */

void fgv_withdraw_init(struct fgv_worker *worker)
{
    /* There when the daemon had it loaded before libc. */
    *(void **)&worker->withdrawal.hold = dlsym(RTLD_DEFAULT, "fgv_channels_hold");
}

/* As far as can be told. What is overdue by no more than a tail may be held up by the next one's time slice alone. */
static bool goes_on_for(const struct fgv_worker *worker, uint64_t time_ns, uint64_t now_ns)
{
    uint64_t end_ns = worker->last_finish_ns + worker->mean_ns * fgv_nr_running(worker);
    return worker->mean_ns == 0 || end_ns > now_ns + time_ns || now_ns > end_ns + FGV_TAIL_NS;
}

static bool is_long_enough_beside(const struct fgv_worker *worker, uint64_t now_ns)
{
    const struct fgv_grantee *grantee = &worker->grantee;
    const uint64_t slice_ns = atomic_load_explicit(&grantee->control->slice_ns, memory_order_relaxed);
    const uint64_t beside_ns = fgv_grant_beside_ns(grantee, now_ns);
    return beside_ns > BESIDE_NS ||
           (beside_ns != 0 && fgv_grant_holder_stays(grantee) && goes_on_for(worker, slice_ns / LONG_PART, now_ns));
}

static bool is_in_the_way(const struct fgv_worker *worker, uint64_t now_ns)
{
    return worker->withdrawal.hold && fgv_nr_running(worker) != 0 && worker->busy_since_ns != 0 &&
           worker->busy_since_ns <= now_ns && is_long_enough_beside(worker, now_ns) &&
           goes_on_for(worker, BESIDE_NS, now_ns);
}

static void log_refusal(const struct fgv_worker *worker, const char *what, const struct fgv_channels_answer *answer)
{
    fgv_log(worker, FGV_LOG_ERROR, "%s: %s, status 0x%x of the driver", what, strerror(answer->error), answer->status);
}

/* Both keep the device from each other until it is off, and pay half of that each: the holder is charged later, when
 * nothing tells any more that it had not all of it. */
static void withdraw(struct fgv_worker *worker)
{
    struct fgv_withdrawal *withdrawal = &worker->withdrawal;
    fgv_sync_mark_all(worker);
    const uint64_t asked_ns = fgv_clock_ns();
    fgv_turn_charge(worker, asked_ns);
    fgv_grant_spare_holder(&worker->grantee, asked_ns + withdrawal->took_ns / 2);
    const struct fgv_channels_answer answer = withdrawal->hold(true);
    if (!fgv_channels_did(&answer)) {
        log_refusal(worker, "long kernels share the device by the driver's time slices: its channels cannot be held",
                    &answer);
        withdrawal->hold = NULL;
        return;
    }
    withdrawal->since_ns = fgv_clock_ns();
    const uint64_t beside_ns = fgv_grant_beside_ns(&worker->grantee, withdrawal->since_ns);
    const uint64_t took_ns = withdrawal->since_ns - asked_ns;
    withdrawal->took_ns = took_ns < TOOK_MOST_NS ? took_ns : TOOK_MOST_NS;
    fgv_count(&worker->slot->nr_withdrawn, 1);
    fgv_grant_charge(&worker->grantee, asked_ns, withdrawal->since_ns);
    fgv_grant_set_running(&worker->grantee, false);
    worker->busy_since_ns = worker->tail_until_ns = 0;
    fgv_grant_reenter(&worker->grantee, withdrawal->since_ns - beside_ns, withdrawal->since_ns);
}

bool fgv_withdraw_if_in_the_way(struct fgv_worker *worker, uint64_t now_ns)
{
    if (!is_in_the_way(worker, now_ns)) {
        return false;
    }
    withdraw(worker);
    return true;
}

/* What was off the device did not run meanwhile. */
static void go_on(struct fgv_worker *worker, uint64_t now_ns)
{
    struct fgv_withdrawal *withdrawal = &worker->withdrawal;
    const uint64_t off_ns = now_ns - withdrawal->since_ns;
    withdrawal->since_ns = 0;
    withdrawal->back_ns = now_ns;
    worker->last_finish_ns += off_ns;
    worker->burst_since_ns += off_ns;
    worker->busy_since_ns = now_ns;
    worker->next_poll_ns = 0;
    fgv_grant_set_running(&worker->grantee, true);
}

void fgv_withdraw_end(struct fgv_worker *worker)
{
    const uint64_t asked_ns = fgv_clock_ns();
    const struct fgv_channels_answer answer = worker->withdrawal.hold(false);
    if (!fgv_channels_did(&answer)) {
        log_refusal(worker, "its channels cannot be let go", &answer);
        worker->ended = "the driver does not let its work go on";
    }
    const uint64_t now_ns = fgv_clock_ns();
    fgv_grant_charge_whole(&worker->grantee, asked_ns, now_ns);
    go_on(worker, now_ns);
}

void fgv_withdrawn_poll(struct fgv_worker *worker, uint64_t now_ns)
{
    if (worker->grantee.is_user && !fgv_grant_has(&worker->grantee)) {
        fgv_grant_leave(&worker->grantee, true, now_ns); /* taken away before it was used */
    }
    if (fgv_grant_enter(&worker->grantee, now_ns)) {
        fgv_withdraw_end(worker);
    } else {
        fgv_grant_nudge(&worker->grantee, now_ns);
    }
}
