/*
 * The worker's life: it opens the device library, takes a client, serves its ring until the client ends, and takes
 * everything down.
 *
 * The loop never sleeps in the driver; what it does while there is nothing to do is in rest.c. The client is looked
 * after in between: a guest that closes, or whose beat has stood still, ends the worker.
 *
 * Wrong when: a call of the driver takes seconds (a large PTX image is compiled). Other threads of the same program
 * wait for it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/count.h"
#include "calls/context.h"
#include "calls/event_time.h"
#include "calls/graph_memory.h"
#include "calls/host_function.h"
#include "calls/image.h"
#include "calls/kinds.h"
#include "calls/limits.h"
#include "calls/memory.h"
#include "calls/pool.h"
#include "calls/sharing.h"
#include "calls/span.h"
#include "calls/state.h"
#include "calls/swap.h"
#include "calls/virtual_memory.h"
#include "client/attach.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/state.h"
#include "ivshmem/region.h"
#include "ivshmem/ring.h"
#include "loop/face.h"
#include "loop/lacking.h"
#include "loop/rest.h"
#include "loop/serve.h"
#include "loop/stand.h"
#include "loop/state.h"
#include "loop/waiters.h"
#include "page/apart.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/layout.h"
#include "page/outlook.h"
#include "page/room.h"
#include "page/sleep.h"
#include "parts/making.h"
#include "parts/parts.h"
#include "parts/persistent.h"
#include "parts/state.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/beside.h"
#include "turn/charge.h"
#include "turn/round.h"
#include "turn/state.h"
#include "turn/turn.h"
#include "turn/yield.h"

#define RECORDS_PER_ROUND 64
#define ROUNDS_UNWATCHED  16
#define LOOK_NS           UINT64_C(50000000)
#define SHOW_NS           UINT64_C(1000000000)
#define END_SECONDS       10 /* a device library that takes longer to let go is left behind */

/* All floors of the one worker of this process. */
struct house {
    struct fgw_worker worker;
    struct fgw_track track;
    struct fgw_turn turn;
    struct fgw_slicing slicing;
    struct fgw_calls calls;
    struct fgw_loop loop;
};

static const struct fgw_track_listener track_listener = {
    .started = fgw_charge_started,
    .finished = fgw_charge_finished,
    .copied = fgw_beside_submitted,
    .progressed = fgw_waiters_answer,
    .dropped = fgw_waiters_drop_context,
};

static const struct fgw_turn_above turn_above = {
    .is_in_parts = fgw_parts_is_one,
    .stop = fgw_persistent_stop_once,
    .rouse = fgw_waiters_rouse,
};

static struct fgw_worker *build(void)
{
    struct house *house = calloc(1, sizeof(*house));
    uint8_t *backlog = malloc(FGW_BACKLOG_BYTES);
    if (!house || !backlog) {
        free(house);
        free(backlog);
        return NULL;
    }
    struct fgw_worker *worker = &house->worker;
    worker->track = &house->track;
    worker->turn = &house->turn;
    worker->slicing = &house->slicing;
    worker->calls = &house->calls;
    worker->loop = &house->loop;
    house->track.listener = &track_listener;
    house->turn.above = &turn_above;
    house->loop.backlog.bytes = backlog;
    return worker;
}

struct fgw_worker *fgw_worker_open(const char *library, int device, char *error, uint32_t error_bytes)
{
    struct fgw_worker *worker = build();
    if (!worker || !fgw_handles_init(worker, fgw_kinds)) {
        snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    fgw_rest_init(worker, sysconf(_SC_NPROCESSORS_ONLN));
    fgw_track_mark_every(worker, FGW_MARK_INTERVAL);
    fgw_host_init(worker);
    if (fgw_client_open(worker, library, device, error, error_bytes) != CUDA_SUCCESS) {
        return NULL;
    }
    worker->replay = fgw_replay_new(&worker->driver);
    if (!worker->replay) {
        snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    fgw_event_time_wrap(&worker->driver);
    fgw_memory_wrap(&worker->driver);
    fgw_graph_memory_wrap(&worker->driver);
    fgw_limits_wrap(&worker->driver);
    fgw_the_worker = worker;
    return worker;
}

int fgw_worker_attach(struct fgw_worker *worker, const struct fgw_assignment *assignment, char *error,
                      uint32_t error_bytes)
{
    struct fgw_loop *loop = worker->loop;
    const CUresult result = fgw_client_take(worker, assignment, error, error_bytes);
    if (result != CUDA_SUCCESS) {
        return (int)result;
    }
    fgw_turn_know_device(worker);
    fgv_consumer_init(&loop->consumer, worker->region.base + worker->layout.ring.offset, worker->layout.ring_bytes,
                      worker->layout.commit_key, worker->region.wake);
    loop->consumer.bell = worker->region.host_bell;
    atomic_store(&worker->slot->state, FGW_WORKER_SERVING);
    fgw_client_announce(worker, FGV_CLIENT_HELLO, FGV_CLIENT_READY);
    return CUDA_SUCCESS;
}

/* Tells the guest how much of the last second its work was on the device. */
static void show_use(struct fgw_worker *worker, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - worker->loop->shown_ns;
    if (passed_ns < SHOW_NS) {
        return;
    }
    uint64_t gpu_ns = atomic_load_explicit(&worker->slot->gpu_ns, memory_order_relaxed);
    uint64_t permille = worker->loop->shown_ns == 0 ? 0 : (gpu_ns - worker->loop->shown_gpu_ns) * 1000 / passed_ns;
    atomic_store_explicit(&worker->client->gpu_permille, permille < 1000 ? (uint32_t)permille : 1000,
                          memory_order_relaxed);
    worker->loop->shown_ns = now_ns;
    worker->loop->shown_gpu_ns = gpu_ns;
}

/* Whether there is still somebody to serve; looked at now and then. */
static void look_after_client(struct fgw_worker *worker, uint64_t now_ns)
{
    worker->loop->looked_ns = now_ns;
    uint32_t state = atomic_load_explicit(&worker->client->state, memory_order_acquire);
    uint32_t command = fgw_grant_command(&worker->grantee);
    uint64_t beat = atomic_load_explicit(&worker->client->beat, memory_order_relaxed);
    if (beat != worker->loop->beat || worker->loop->beat_changed_ns == 0 || command == FGW_WORKER_PATIENT) {
        worker->loop->beat = beat;
        worker->loop->beat_changed_ns = now_ns;
    }
    if (state != FGV_CLIENT_READY) {
        fgw_worker_end(worker, "the client closed");
    } else if (now_ns - worker->loop->beat_changed_ns > FGV_BEAT_LOST_NS) {
        fgw_worker_end(worker, "the client's beat was lost");
    }
}

/* Takes records off the ring. True when there were any; `is_backlog_full`: the backlog has no room for the next. */
static bool serve_ring(struct fgw_worker *worker, bool *is_backlog_full)
{
    for (int i = 0; i < RECORDS_PER_ROUND; i++) {
        struct fgv_consumed record;
        enum fgv_consume_status status = fgv_consumer_peek(&worker->loop->consumer, &record);
        if (status == FGV_CONSUME_EMPTY) {
            return i != 0;
        }
        if (status == FGV_CONSUME_HOSTILE) {
            fgw_count(&worker->slot->nr_refused, 1);
            fgw_worker_end(worker, "the client's ring holds what no honest client writes");
            return false;
        }
        if (fgw_serve_record(worker, &record) == FGW_SERVE_LATER) {
            *is_backlog_full = true;
            return i != 0;
        }
        fgv_consumer_release(&worker->loop->consumer);
    }
    return true;
}

static void look_around(struct fgw_worker *worker, uint64_t now_ns)
{
    if (now_ns - worker->loop->looked_ns > LOOK_NS) {
        now_ns = fgw_clock_ns(); /* since this round began a change of devices may have taken seconds */
        look_after_client(worker, now_ns);
        show_use(worker, now_ns);
        if (!fgw_swap_is_moving(worker)) {
            fgw_pools_rest(worker);
        }
        fgw_stand_tell_bound(worker);
    }
}

/* Brings memory out or in, where more is allocated than there is. True: something has come of it. */
static bool swap(struct fgw_worker *worker, uint64_t now_ns)
{
    const bool is_in_motion = fgw_motion(&worker->grantee) != FGW_MOTION_NONE ||
                              fgw_sleep_is_wanted(&worker->grantee) ||
                              atomic_load_explicit(&worker->slot->stage, memory_order_relaxed) != FGW_STAGE_RUNS ||
                              fgw_replay_is_active(worker);
    if (!fgw_room_is_short(&worker->grantee) && !worker->turn->is_displaced && !fgw_swap_has_copies(worker) &&
        !fgw_room_is_suspended(&worker->grantee) && !is_in_motion) {
        return false;
    }
    const bool is_settled = !worker->loop->first_waiter && !worker->track->busy && worker->track->behind.nr == 0 &&
                            worker->track->nr_gates == 0 && fgw_track_nr_open(worker) == 0 &&
                            fgw_yield_is_settled(worker);
    const bool is_news = fgw_swap_poll(worker, is_settled, now_ns);
    if (is_in_motion) {
        fgw_stand_look(worker, is_settled && !worker->loop->lacking.first);
    }
    return is_news;
}

/* A round while this worker's work is off the device. */
static void stand_by(struct fgw_worker *worker)
{
    const uint64_t now_ns = fgw_clock_ns();
    fgw_turn_poll(worker, now_ns);
    look_around(worker, now_ns);
    if (!fgw_turn_is_off(worker)) {
        fgw_rest_end(worker);
        worker->loop->next_poll_ns = 0;
    } else if (!worker->ended) {
        fgw_rest(worker, now_ns, true);
    }
}

static void loop(struct fgw_worker *worker)
{
    uint32_t nr_hurried = 0;
    while (!worker->ended) {
        fgw_grant_follow(&worker->grantee);
        if (fgw_stands(worker)) {
            fgw_stand_still(worker);
            look_after_client(worker, fgw_clock_ns());
            continue;
        }
        fgw_stand_no_more(worker);
        if (fgw_turn_is_off(worker)) {
            stand_by(worker);
            continue;
        }
        bool is_backlog_full = false;
        bool is_news = fgw_loop_has_backlog(worker) && fgw_serve_backlog(worker);
        bool is_record = serve_ring(worker, &is_backlog_full);
        is_news |= is_record;
        fgw_host_round(worker);
        if (is_record && !worker->track->busy && !worker->loop->first_waiter && !fgw_turn_is_waiting(worker) &&
            worker->track->behind.nr == 0 && ++nr_hurried < ROUNDS_UNWATCHED) {
            fgw_rest_end(worker);
            continue; /* nothing to watch: on to the next record without reading the clock */
        }
        nr_hurried = 0;
        uint64_t now_ns = fgw_clock_ns();
        if ((worker->track->busy || worker->loop->first_waiter) && now_ns >= worker->loop->next_poll_ns) {
            is_news |= fgw_sync_poll(worker, now_ns);
            is_news |= !fgw_swap_is_moving(worker) && fgw_waiters_run(worker);
            worker->loop->next_poll_ns = fgw_rest_next_poll_ns(worker, now_ns);
        }
        if (worker->track->behind.nr != 0) {
            is_news |= fgw_host_poll(worker);
        }
        is_news |= swap(worker, now_ns);
        is_news |= fgw_serve_lacking(worker, now_ns);
        fgw_turn_poll(worker, now_ns);
        fgw_makings_poll(worker);
        fgw_persistent_poll(worker);
        fgw_yield_poll(worker);
        fgw_round_poll(worker, now_ns);
        look_around(worker, now_ns);
        if (is_news) {
            fgw_rest_end(worker);
        } else if (!worker->ended) {
            fgw_rest(worker, now_ns, is_backlog_full);
        }
    }
}

/* The device library does not let go: whatever it still holds, the kernel takes. */
static void leave_at_once(int signal_number)
{
    (void)signal_number;
    fgw_charge_end(fgw_the_worker);
    _exit(70);
}

static void take_down(struct fgw_worker *worker)
{
    fgw_turn_end(worker);
    signal(SIGALRM, leave_at_once);
    alarm(END_SECONDS);
    fgw_client_announce(worker, FGV_CLIENT_READY, FGV_CLIENT_DEAD); /* unless it closed by itself */
    if (fgw_stands(worker) && fgw_sleep_is_wanted(&worker->grantee)) {
        leave_at_once(0); /* the driver has what there is, and answers no call */
    }
    fgw_replay_end(worker);
    fgw_persistent_stop(worker);
    fgw_yield_ask(worker);
    fgw_round_end(worker);
    fgw_waiters_drop(worker);
    fgw_lacking_drop(worker);
    fgw_host_end(worker);
    fgw_sync_poll(worker, fgw_clock_ns());
    if (worker->track->nr_gates != 0) {
        leave_at_once(0); /* a stream waits for a value that nobody is left to write: no driver would let go of it */
    }
    fgw_swap_drop(worker);
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            fgw_context_destroy(worker, worker->contexts[i]);
        }
    }
    fgw_sharing_drop_context(worker, NULL);
    fgw_memory_drop_context(worker, NULL);
    fgw_handles_end(worker);
    fgw_pools_drop(worker);
    fgw_graph_memory_drop(worker);
    fgw_span_drop(worker);
    fgw_virtual_memory_drop(worker);
    fgw_blobs_free(worker);
    free(worker->loop->backlog.bytes);
    free(worker->pieces.items);
    fgw_context_cool(worker);
    fgw_charge_end(worker);
    fgw_grantee_detach(&worker->grantee);
    atomic_store(&worker->slot->state, FGW_WORKER_ENDED);
    alarm(0);
}

const char *fgw_worker_run(struct fgw_worker *worker)
{
    loop(worker);
    const char *ended = worker->ended;
    take_down(worker);
    fgw_the_worker = NULL;
    free(worker);
    return ended;
}
