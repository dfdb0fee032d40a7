/*
 * See replay.h. The thread does one thing after another, and waits for a word of the loop in between; what it made is
 * its own while it works, and the loop's while it waits.
 *
 * Wrong when: a driver holds a lock of its own for long while it makes a context or loads an image. The program's calls
 * wait for it then.
 */
#include "replay/replay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "calls/event_time.h"
#include "calls/memory.h"
#include "calls/state.h"
#include "calls/swap.h"
#include "client/current.h"
#include "client/handles.h"
#include "page/room.h"
#include "parts/lane.h"
#include "parts/parts.h"
#include "parts/variant.h"
#include "replay/ahead.h"
#include "replay/equals.h"
#include "replay/variables.h"
#include "track/ends.h"
#include "turn/state.h"
#include "turn/ways.h"

#define MOST_ROUNDS 3

/* Whoever changes it has the lock. */
enum state { AWAY, COPYING, COPIED, FOLLOWING, FOLLOWED, DROPPING, GONE, FAILED };

/* One change of devices, which the thread has a pointer to. */
struct fgw_replay {
    struct fgv_driver driver;
    struct fgw_worker *worker;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic enum state state; /* AWAY: there is no thread */
    const char *why;          /* FAILED */
    uint32_t bound;
    bool has_crossed;
    bool is_for_good; /* it goes by the other page */
    bool has_tried;   /* in this motion */
    bool has_home;    /* the thread has a reference to the primary context of `from`; whoever changes it has the lock */
    _Atomic bool is_given_up; /* that context is to go */
    CUdevice from;
    struct fgw_equals *equals;
    struct fgw_ahead ahead;
    struct fgw_ahead_compared compared; /* by the thread */
    struct fgw_compared counted;        /* of that, in the page */
    struct fgw_saver whole, before, now;
    struct fgw_event_mark mark; /* of the device before */
};

struct fgw_replay *fgw_replay_new(const struct fgv_driver *driver)
{
    struct fgw_replay *replay = calloc(1, sizeof(*replay));
    if (replay) {
        replay->driver = *driver;
        pthread_mutex_init(&replay->lock, NULL);
        pthread_cond_init(&replay->changed, NULL);
    }
    return replay;
}

/* ---- between the two threads ---- */

static enum state state_of(const struct fgw_replay *replay)
{
    return atomic_load_explicit(&replay->state, memory_order_acquire);
}

static void enter(struct fgw_replay *replay, enum state state)
{
    pthread_mutex_lock(&replay->lock);
    replay->state = state;
    pthread_cond_broadcast(&replay->changed);
    pthread_mutex_unlock(&replay->lock);
}

/* Waits while it is this one; gives what it is then. */
static enum state wait_out(struct fgw_replay *replay, enum state state)
{
    pthread_mutex_lock(&replay->lock);
    while (replay->state == state) {
        pthread_cond_wait(&replay->changed, &replay->lock);
    }
    const enum state now = replay->state;
    pthread_mutex_unlock(&replay->lock);
    return now;
}

/* ---- the thread ---- */

/* Until a round changes as much as the one before, or nothing. */
static const char *copy_ahead(struct fgw_replay *replay)
{
    uint64_t before_bytes = UINT64_MAX;
    const char *why = NULL;
    for (int i = 0; i < MOST_ROUNDS && !why; i++) {
        uint64_t changed_bytes = 0;
        why = fgw_ahead_round(&replay->ahead, replay->worker, &changed_bytes);
        if (changed_bytes == 0 || changed_bytes >= before_bytes) {
            break;
        }
        before_bytes = changed_bytes;
    }
    return why;
}

/* The context that memory is copied in is current, and stays while the thread has it. */
static const char *enter_home(struct fgw_replay *replay)
{
    CUcontext home = NULL;
    pthread_mutex_lock(&replay->lock);
    replay->has_home =
        !replay->is_given_up && replay->driver.cuDevicePrimaryCtxRetain(&home, replay->from) == CUDA_SUCCESS;
    pthread_mutex_unlock(&replay->lock);
    replay->ahead.context = home;
    replay->driver.cuCtxSetCurrent(home);
    return home ? NULL : "its device gives no context";
}

static void leave_home(struct fgw_replay *replay)
{
    fgw_ahead_end(&replay->ahead);
    replay->driver.cuCtxSetCurrent(NULL);
    pthread_mutex_lock(&replay->lock);
    if (replay->has_home) {
        replay->driver.cuDevicePrimaryCtxRelease_v2(replay->from);
        replay->has_home = false;
        pthread_cond_broadcast(&replay->changed);
    }
    pthread_mutex_unlock(&replay->lock);
}

/* What a driver takes long for is done in a context of the other device, where no call of the program waits for it. */
static const char *prepare(struct fgw_replay *replay)
{
    const char *why = fgw_equals_make(replay->equals, &replay->whole);
    if (why) {
        replay->bound = FGW_BOUND_OBJECTS;
        return why;
    }
    replay->driver.cuCtxSetCurrent(fgw_equals_context(replay->equals));
    void *code = fgw_printer_compile(&replay->driver);
    why = enter_home(replay);
    why = why ? why : fgw_ahead_begin(&replay->ahead, code);
    free(code);
    why = why ? why : copy_ahead(replay);
    replay->bound = !why ? 0 : replay->is_given_up ? FGW_BOUND_OBJECTS : FGW_BOUND_DEVICE;
    return why;
}

static const char *follow(struct fgw_replay *replay)
{
    uint64_t changed_bytes = 0;
    const char *why = fgw_ahead_round(&replay->ahead, replay->worker, &changed_bytes);
    replay->bound = why ? FGW_BOUND_DEVICE : 0;
    if (!why) {
        why = fgw_equals_follow(replay->equals, &replay->before, &replay->now);
        replay->bound = why ? FGW_BOUND_OBJECTS : 0;
    }
    replay->driver.cuCtxSetCurrent(replay->ahead.context);
    why = why ? why : fgw_variables_follow(replay->worker, replay->equals, &replay->ahead, &replay->bound);
    replay->driver.cuCtxSetCurrent(replay->ahead.context);
    return why;
}

static void tell(struct fgw_replay *replay, const char *why, enum state state)
{
    replay->why = why;
    enter(replay, why ? FAILED : state);
}

static void *run(void *argument)
{
    struct fgw_replay *replay = argument;
    tell(replay, prepare(replay), COPIED);
    enum state state = wait_out(replay, replay->why ? FAILED : COPIED);
    if (state == FOLLOWING) {
        tell(replay, follow(replay), FOLLOWED);
        wait_out(replay, replay->why ? FAILED : FOLLOWED);
    }
    leave_home(replay);
    fgw_equals_drop(replay->equals);
    replay->equals = NULL;
    enter(replay, GONE);
    return NULL;
}

/* ---- the loop ---- */

static void free_saved(struct fgw_replay *replay)
{
    struct fgw_saver *savers[] = {&replay->whole, &replay->before, &replay->now};
    for (size_t i = 0; i < sizeof(savers) / sizeof(savers[0]); i++) {
        free(savers[i]->bytes);
        *savers[i] = (struct fgw_saver){.left_out = FGW_EQUALS_LEFT_OUT};
    }
}

static void refuse(struct fgw_replay *replay, uint32_t bound, const char *why)
{
    replay->bound = bound;
    fgw_log("the program cannot change its device within its process: %s", why);
}

static bool save(struct fgw_worker *worker, struct fgw_saver *saver)
{
    struct fgw_trouble trouble;
    if (fgw_objects_save(worker, saver, &trouble)) {
        return true;
    }
    const char *kind = worker->handles.kinds[trouble.kind].name;
    fgw_log("%s %llx cannot be made again: %s", kind ? kind : "an object", (unsigned long long)trouble.number,
            trouble.why);
    return false;
}

/* What is saved ahead: all of it, and what tells later whether it has changed. */
static bool save_ahead(struct fgw_worker *worker, struct fgw_replay *replay)
{
    free_saved(replay);
    replay->whole.is_at_work = replay->before.is_at_work = true;
    replay->before.first_image = replay->now.first_image = worker->calls->nr_images + 1;
    return save(worker, &replay->whole) && save(worker, &replay->before);
}

static void begin(struct fgw_worker *worker)
{
    struct fgw_replay *replay = worker->replay;
    CUdevice to;
    replay->bound = 0;
    if (worker->driver.cuDeviceGet(&to, (int)fgw_motion_device(&worker->grantee)) != CUDA_SUCCESS ||
        to == worker->device) {
        refuse(replay, FGW_BOUND_DEVICE, "the other device is not in sight");
        return;
    }
    if (!save_ahead(worker, replay)) {
        refuse(replay, FGW_BOUND_OBJECTS, "not all of its objects can be made again");
        return;
    }
    replay->worker = worker;
    replay->is_for_good = false;
    replay->is_given_up = false;
    replay->from = worker->device;
    replay->ahead = (struct fgw_ahead){.driver = &replay->driver,
                                       .from = worker->device,
                                       .to = to,
                                       .compared = &replay->compared,
                                       .is_given_up = &replay->is_given_up};
    replay->equals = fgw_equals_new(worker, &replay->driver, to);
    fgw_ways_renew(worker, false);
    replay->state = COPYING;
    if (!replay->equals || pthread_create(&replay->thread, NULL, run, replay) != 0) {
        fgw_equals_drop(replay->equals);
        replay->equals = NULL;
        replay->state = AWAY;
        refuse(replay, FGW_BOUND_DEVICE, "the host has no memory or thread for it");
    }
}

/* What the worker has of its own in the contexts, and makes again when it needs it. `nr_marks`: of each. */
static void leave_contexts(struct fgw_worker *worker, uint32_t nr_marks[FGW_MAX_CONTEXTS])
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = worker->contexts[i];
        if (context) {
            fgw_context_make_current(worker, context);
            nr_marks[i] = fgw_track_leave(worker, context);
            fgw_variants_drop_context(worker, context);
            fgw_lanes_drop(worker, context);
            fgw_swap_drop_context(worker, context);
        }
    }
}

static void enter_contexts(struct fgw_worker *worker, const uint32_t nr_marks[FGW_MAX_CONTEXTS])
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            fgw_context_make_current(worker, worker->contexts[i]);
            fgw_track_enter(worker, worker->contexts[i], nr_marks[i]);
        }
    }
}

static void keep_event_times(struct fgw_worker *worker, struct fgw_replay *replay, struct fgw_event_mark mark)
{
    struct fgw_handle event;
    for (uint32_t at = 0; fgw_handle_next(worker, FGV_HANDLE_EVENT, &at, &event);) {
        fgw_event_time_keep(event.native, fgw_equals_event(replay->equals, event.number), &mark);
    }
}

/* The client's memory and objects for what the thread has. It says why not; then all is as it was, or the worker ends.
 */
static const char *exchange(struct fgw_worker *worker, struct fgw_replay *replay)
{
    struct fgw_context *current = worker->current;
    uint32_t nr_marks[FGW_MAX_CONTEXTS];
    bool is_lost = false;
    leave_contexts(worker, nr_marks);
    fgw_context_make_current(worker, current);
    fgw_memory_unpin(worker, NULL);
    const char *why = fgw_ahead_exchange(&replay->ahead, worker, &is_lost);
    if (!why && !fgw_equals_exchange(replay->equals, worker)) {
        why = "not all of its objects were made again";
        is_lost = fgw_ahead_exchange(&replay->ahead, worker, &is_lost) != NULL;
    }
    if (!why) {
        fgw_told_exchange(worker);
    }
    if (is_lost) {
        fgw_worker_end(worker, "its memory was lost between two devices");
    }
    enter_contexts(worker, nr_marks);
    fgw_context_make_current(worker, current);
    if (current) {
        fgw_memory_pin(worker);
    }
    return why;
}

static void cross(struct fgw_worker *worker)
{
    struct fgw_replay *replay = worker->replay;
    if (!save(worker, &replay->now)) {
        refuse(replay, FGW_BOUND_OBJECTS, "not all of its objects can be made again");
        enter(replay, DROPPING);
        return;
    }
    enter(replay, FOLLOWING);
    if (wait_out(replay, FOLLOWING) == FAILED) {
        return;
    }
    const bool has_context = fgw_context_any(worker) != NULL;
    fgw_context_make_current(worker, worker->current ? worker->current : fgw_context_any(worker));
    replay->mark = has_context ? fgw_event_mark() : (struct fgw_event_mark){0};
    const char *why = exchange(worker, replay);
    if (why) {
        refuse(replay, FGW_BOUND_DEVICE, why);
        enter(replay, DROPPING);
        return;
    }
    const struct fgw_event_mark mark = has_context ? fgw_event_mark() : (struct fgw_event_mark){0};
    keep_event_times(worker, replay, replay->mark);
    replay->mark = fgw_event_time_go_by(mark);
    replay->has_crossed = true;
}

void fgw_replay_give_up(struct fgw_worker *worker)
{
    struct fgw_replay *replay = worker->replay;
    if (state_of(replay) == AWAY) {
        return;
    }
    pthread_mutex_lock(&replay->lock);
    replay->is_given_up = true;
    while (replay->has_home && replay->state == COPYING) {
        pthread_cond_wait(&replay->changed, &replay->lock);
    }
    const bool has_home = replay->has_home;
    pthread_mutex_unlock(&replay->lock);
    if (has_home && (state_of(replay) == COPIED || state_of(replay) == FAILED)) {
        refuse(replay, FGW_BOUND_OBJECTS, "its context goes");
        enter(replay, DROPPING);
    }
    pthread_mutex_lock(&replay->lock);
    while (replay->has_home) {
        pthread_cond_wait(&replay->changed, &replay->lock);
    }
    pthread_mutex_unlock(&replay->lock);
}

void fgw_replay_undo(struct fgw_worker *worker)
{
    struct fgw_replay *replay = worker->replay;
    if (!replay->has_crossed) {
        return;
    }
    replay->has_crossed = false;
    const char *why = exchange(worker, replay);
    if (why) {
        fgw_worker_end(worker, "it cannot go back to its device");
        return;
    }
    keep_event_times(worker, replay, (struct fgw_event_mark){0});
    fgw_event_time_go_by(replay->mark);
    enter(replay, DROPPING);
}

void fgw_replay_settle(struct fgw_worker *worker)
{
    struct fgw_replay *replay = worker->replay;
    if (replay->has_crossed) {
        replay->has_crossed = false;
        replay->is_for_good = true;
        enter(replay, DROPPING);
    }
}

/* Of a launch in parts those that ended are nowhere but here: it goes on to its last one first. */
static bool may_cross(struct fgw_worker *worker, bool is_settled)
{
    return fgw_motion(&worker->grantee) == FGW_MOTION_CHANGE && is_settled && worker->nr_captures == 0 &&
           !fgw_parts_is_one(worker) && worker->turn->phase == FGW_PHASE_OUT && worker->calls->span.nr_out == 0 &&
           !fgw_swap_is_moving(worker) && fgw_track_is_still(worker);
}

static void count_compared(struct fgw_worker *worker, struct fgw_replay *replay)
{
    const struct fgw_compared now = {.bytes = atomic_load_explicit(&replay->compared.bytes, memory_order_relaxed),
                                     .changed_bytes =
                                         atomic_load_explicit(&replay->compared.changed_bytes, memory_order_relaxed)};
    fgw_count(&worker->slot->compared_bytes, now.bytes - replay->counted.bytes);
    fgw_count(&worker->slot->changed_bytes, now.changed_bytes - replay->counted.changed_bytes);
    replay->counted = now;
}

void fgw_replay_poll(struct fgw_worker *worker, bool is_settled)
{
    struct fgw_replay *replay = worker->replay;
    const enum state state = state_of(replay);
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    const bool is_wanted = motion == FGW_MOTION_COPY || motion == FGW_MOTION_CHANGE;
    if (state == GONE) {
        pthread_join(replay->thread, NULL);
        free_saved(replay);
        replay->state = AWAY;
    } else if (state == AWAY && is_wanted && !replay->has_tried) {
        replay->has_tried = true;
        begin(worker);
    } else if (state == FAILED) {
        refuse(replay, replay->bound, replay->why);
        enter(replay, DROPPING);
    } else if (state == COPIED && may_cross(worker, is_settled)) {
        cross(worker);
    } else if (state == COPIED && !is_wanted) {
        enter(replay, DROPPING);
    }
    replay->has_tried &= is_wanted;
    count_compared(worker, replay);
    atomic_store_explicit(&worker->slot->ahead_bytes,
                          atomic_load_explicit(&replay->ahead.copied_bytes, memory_order_relaxed),
                          memory_order_relaxed);
}

bool fgw_replay_is_active(const struct fgw_worker *worker)
{
    return state_of(worker->replay) != AWAY;
}

enum fgw_stage fgw_replay_stage(const struct fgw_worker *worker)
{
    const struct fgw_replay *replay = worker->replay;
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    const enum state state = state_of(replay);
    if (motion != FGW_MOTION_COPY && motion != FGW_MOTION_CHANGE) {
        return state == AWAY || replay->is_for_good ? FGW_STAGE_RUNS : FGW_STAGE_PREPARED;
    }
    return replay->has_crossed ? FGW_STAGE_STANDS : state == COPIED ? FGW_STAGE_PREPARED : FGW_STAGE_RUNS;
}

uint32_t fgw_replay_bound(const struct fgw_worker *worker)
{
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    const bool is_tried = motion == FGW_MOTION_COPY || motion == FGW_MOTION_CHANGE;
    return is_tried && state_of(worker->replay) != COPYING ? worker->replay->bound : 0;
}

void fgw_replay_end(struct fgw_worker *worker)
{
    struct fgw_replay *replay = worker->replay;
    enum state state = state_of(replay);
    if (state == COPYING) {
        state = wait_out(replay, COPYING);
    }
    if (state != AWAY) {
        if (state != DROPPING && state != GONE) {
            enter(replay, DROPPING);
        }
        pthread_join(replay->thread, NULL);
    }
    free_saved(replay);
    free(replay);
    worker->replay = NULL;
}
