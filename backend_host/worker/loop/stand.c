/* See stand.h. */
#define _GNU_SOURCE
#include "loop/stand.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "calls/bound.h"
#include "calls/swap.h"
#include "client/attach.h"
#include "client/daemon.h"
#include "client/state.h"
#include "ivshmem/ring.h"
#include "loop/rest.h"
#include "page/control.h"
#include "page/room.h"
#include "turn/state.h"
#include "turn/turn.h"
#include "turn/ways.h"

/* So late a worker that stands hears of the daemon. */
#define NAP_NS 1000000
/* So late one whose contexts are to leave the device, or have left it, hears of it, and of its client: to bring them
 * back takes 100s of ms. 50 looks a second cost no CPU time that one would see. */
#define SLEEP_NAP_NS 20000000

static bool can_stand(const struct fgw_worker *worker, bool is_settled)
{
    return is_settled && !fgw_replay_is_active(worker) && worker->nr_captures == 0 &&
           worker->turn->phase == FGW_PHASE_OUT && fgw_swap_is_out(worker);
}

/* Tells whether its contexts can leave the device: its client has not called, and nothing else is left there. */
static bool can_sleep(const struct fgw_worker *worker, bool is_settled)
{
    return can_stand(worker, is_settled) && fgw_room_is_suspended(&worker->grantee) &&
           atomic_load_explicit(&worker->slot->resident_bytes, memory_order_relaxed) == 0;
}

/* Replay that was given up may have something left: nothing goes on by a checkpoint before that is gone. */
static enum fgw_stage stage_of(const struct fgw_worker *worker, bool is_settled)
{
    switch (fgw_motion(&worker->grantee)) {
    case FGW_MOTION_PREPARE:
        return fgw_swap_is_prepared(worker) && !fgw_replay_is_active(worker) ? FGW_STAGE_PREPARED : FGW_STAGE_RUNS;
    case FGW_MOTION_STAND:
        return can_stand(worker, is_settled) ? FGW_STAGE_STANDS : FGW_STAGE_PREPARED;
    case FGW_MOTION_NONE:
        if (fgw_sleep_is_wanted(&worker->grantee) && can_sleep(worker, is_settled)) {
            return FGW_STAGE_STANDS;
        }
        return fgw_replay_stage(worker);
    default:
        return fgw_replay_stage(worker);
    }
}

void fgw_stand_tell_bound(struct fgw_worker *worker)
{
    const uint32_t bits = fgw_bound_of(worker) | fgw_replay_bound(worker);
    if (atomic_load_explicit(&worker->slot->bound, memory_order_relaxed) != bits) {
        atomic_store_explicit(&worker->slot->bound, bits, memory_order_relaxed);
    }
}

void fgw_stand_look(struct fgw_worker *worker, bool is_settled)
{
    fgw_replay_poll(worker, is_settled && fgw_bound_of(worker) == 0); /* no call since may have bound it */
    const enum fgw_stage stage = stage_of(worker, is_settled);
    if (stage != FGW_STAGE_STANDS) {
        fgw_replay_undo(worker); /* it was called back while it crossed, and never stood */
    }
    const uint32_t before = atomic_load_explicit(&worker->slot->stage, memory_order_relaxed);
    const bool is_replay = fgw_replay_is_active(worker);
    fgw_stand_tell_bound(worker);
    if (!is_replay && (before == FGW_STAGE_STANDS || stage == FGW_STAGE_STANDS)) {
        fgw_ways_renew(worker, stage != FGW_STAGE_STANDS);
    }
    if (before != (uint32_t)stage) {
        fgw_motion_tell(&worker->grantee, stage);
    }
}

static void go_over(struct fgw_worker *worker, const struct fgw_found *page)
{
    if (page->nr_files != FGW_CONTROL_OBJECTS ||
        !fgw_client_change_page(worker, page->files, page->key.words[0], page->key.words[1])) {
        fgw_log("the page of another Gpu cannot be used: %s", strerror(errno));
        fgw_worker_end(worker, "its vGPU moved, and it could not");
    }
    fgw_daemon_forget_page(worker);
    fgw_replay_settle(worker);
    fgw_ways_renew(worker, true);
    fgw_turn_know_device(worker);
    fgw_rest_end(worker);
}

void fgw_stand_still(struct fgw_worker *worker)
{
    const bool is_to_sleep = fgw_sleep_is_wanted(&worker->grantee);
    const struct timespec nap = {.tv_nsec = is_to_sleep ? SLEEP_NAP_NS : NAP_NS};
    while (fgw_daemon_read(worker)) {
    }
    if (is_to_sleep && fgv_consumer_has(&worker->loop->consumer)) {
        fgw_swap_wake(worker);
    }
    const struct fgw_found *page = fgw_daemon_page(worker);
    if (page) {
        go_over(worker, page);
    } else {
        nanosleep(&nap, NULL);
    }
}
