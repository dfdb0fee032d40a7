/*
 * Managed memory between the program and the device: see granules.h.
 *
 * Two locks. The door is passed by one touch, or one call of the program's, at a time: while a touch waits for the
 * device no work is added. The books are areas and granules. A host function passes no door: the touch that has it
 * closed may wait for the end of that very function.
 */
#include "managed/granules.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "call/call.h"
#include "call/current.h"
#include "context/host_function.h"
#include "cuda_api/prototypes.h"
#include "managed/contents.h"
#include "managed/trap.h"
#include "region/client.h"

/* A touch brings no more at once: others wait for it. */
#define MOST_GRANULES ((UINT64_C(32) << 20) / FGV_GRANULE_BYTES)

/* So long a touch may wait before a line says so. */
#define LONG_NS UINT64_C(10000000000)

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static uint64_t nr_watched; /* areas that are */
static bool is_settled;     /* no work is under way, as far as somebody watched since */

static bool is_host_function(uint32_t thread)
{
    return thread != 0 && thread == fgv_host_function_thread();
}

static void enter(struct fgv_entered *entered, bool has_door)
{
    if (has_door) {
        pthread_mutex_lock(&door);
    }
    pthread_mutex_lock(&books);
    *entered = (struct fgv_entered){.context = fgv_thread.context,
                                    .current = fgv_thread.current,
                                    .was_ours = fgv_thread.is_ours,
                                    .has_door = has_door};
    fgv_thread.is_ours = 1;
}

void fgv_granules_enter(struct fgv_entered *entered)
{
    enter(entered, true);
}

void fgv_granules_leave(const struct fgv_entered *entered)
{
    fgv_thread.context = entered->context;
    fgv_thread.current = entered->current;
    fgv_thread.is_ours = entered->was_ours;
    pthread_mutex_unlock(&books);
    if (entered->has_door) {
        pthread_mutex_unlock(&door);
    }
}

void fgv_granules_each(void (*visit)(struct fgv_area *area, uint64_t what), uint64_t what)
{
    struct fgv_entered entered;
    if (!fgv_areas_were_made()) {
        return;
    }
    fgv_granules_enter(&entered);
    for (struct fgv_area *area = fgv_areas, *next; area; area = next) {
        next = area->next;
        visit(area, what);
    }
    fgv_granules_leave(&entered);
}

/* ---- who watches ---- */

static bool is_watched(const struct fgv_area *area)
{
    return area->is_fresh || area->first_given < area->end_given;
}

static void watch(void)
{
    if (nr_watched++ == 0) {
        is_settled = false;
    }
    atomic_fetch_add_explicit(&fgv_call_watch, FGV_WATCH_ONE, memory_order_seq_cst);
}

static void unwatch(void)
{
    nr_watched--;
    atomic_fetch_sub_explicit(&fgv_call_watch, FGV_WATCH_ONE, memory_order_seq_cst);
}

void fgv_granules_begin(void)
{
    watch();
}

void fgv_granules_end(struct fgv_area *area)
{
    if (is_watched(area)) {
        unwatch();
    }
}

/* ---- a touch ---- */

/* What a touch of a granule brings: as much as lies at hand already on one side of it, and what was asked for. */
static void choose(const struct fgv_area *area, uint64_t granule, enum fgv_granule right, uint64_t *first,
                   uint64_t *end)
{
    uint64_t before = 0, behind = 0;
    while (before < MOST_GRANULES && before < granule && area->granules[granule - before - 1] >= right) {
        before++;
    }
    while (behind < MOST_GRANULES && granule + behind + 1 < area->nr_granules &&
           area->granules[granule + behind + 1] >= right) {
        behind++;
    }
    *first = granule;
    *end = granule + 1;
    uint64_t most = area->nr_granules - granule;
    if (granule >= area->wanted && granule < area->wanted_end) {
        before = MOST_GRANULES;
        most = area->wanted_end - granule;
    }
    if (before >= behind && before > 1) {
        *end = granule + (before < most ? before : most);
    } else if (behind > 1) {
        *first = granule + 1 - (behind <= granule ? behind : granule + 1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool keep_waiting(void *begun_ns, uint32_t nr_rounds)
{
    if (now_ns() - *(const uint64_t *)begun_ns > LONG_NS) {
        fgv_log_cause(FGV_CAUSE_MANAGED_WAIT,
                      "a touch of managed memory has waited for the device for 10 s; should the device wait for this "
                      "program, both can use that memory at the same time if it is advised to stay with the CPU "
                      "(cudaMemAdvise, preferred location), or with FAIRGV_MANAGED=host");
    }
    return fgv_client_keep_waiting(NULL, nr_rounds);
}

static void synchronize(void)
{
    uint64_t begun_ns = now_ns();
    struct fgv_call call;
    if (fgv_call_begin(&call, FGV_CALL_cuCtxSynchronize, 0, 0)) {
        fgv_call_wait_while(&call, NULL, 0, keep_waiting, &begun_ns);
    }
}

static bool is_captured(void)
{
    return atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0;
}

/* Waits for the work that is under way. The door is closed: nothing is added meanwhile. */
static void settle(const struct fgv_area *area)
{
    if (is_settled || fgv_client_is_open() != CUDA_SUCCESS || is_captured()) {
        return;
    }
    fgv_contents_use_context(area);
    pthread_mutex_unlock(&books);
    synchronize();
    pthread_mutex_lock(&books);
    is_settled = true;
}

/* The area is watched from now on, though nothing is given yet. */
static void announce(struct fgv_area *area, uint64_t granule)
{
    if (!is_watched(area)) {
        watch();
        area->first_given = granule;
        area->end_given = granule + 1;
    }
}

static void synchronize_context(uint64_t handle, void *object, void *unused)
{
    const struct fgv_context *context = object;
    (void)unused;
    if (fgv_context_is_ready(context, handle)) {
        fgv_thread.context = object;
        fgv_thread.current = handle;
        synchronize();
    }
}

bool fgv_granules_quieten(struct fgv_area *area)
{
    if (is_captured()) {
        return false;
    }
    announce(area, 0);
    atomic_fetch_add_explicit(&fgv_call_watch, FGV_WATCH_ADVANCE, memory_order_seq_cst);
    pthread_mutex_unlock(&books);
    fgv_handle_each(FGV_HANDLE_CONTEXT, synchronize_context, NULL);
    pthread_mutex_lock(&books);
    announce(area, 0);
    fgv_contents_use_context(area);
    is_settled = true;
    return true;
}

static bool touched_locked(uint64_t address, bool is_write, bool may_wait)
{
    struct fgv_area *area = fgv_area_find(address);
    if (!area) {
        return false;
    }
    const uint64_t granule = (address - area->address) / FGV_GRANULE_BYTES;
    const enum fgv_granule right = is_write || !fgv_trap_tells_writes() ? FGV_GRANULE_GUEST : FGV_GRANULE_BOTH;
    if (area->granules[granule] >= right) {
        return true;
    }
    announce(area, granule);
    atomic_fetch_add_explicit(&fgv_call_watch, FGV_WATCH_ADVANCE, memory_order_seq_cst);
    if (may_wait && !area->is_fresh) {
        settle(area);
        announce(area, granule); /* a host function may have had all of it meanwhile */
    }
    fgv_contents_use_context(area);
    uint64_t first, end;
    choose(area, granule, right, &first, &end);
    return fgv_contents_give(area, first, end, right) ||
           fgv_contents_give(area, 0, area->nr_granules, FGV_GRANULE_GUEST); /* too many pieces */
}

static bool touched(uint64_t address, bool is_write, uint32_t thread)
{
    struct fgv_entered entered;
    const bool waits = !is_host_function(thread);
    enter(&entered, waits);
    const bool is_ours = touched_locked(address, is_write, waits);
    fgv_granules_leave(&entered);
    return is_ours;
}

/* Of a run that is longer than a touch brings, one such piece more, to be read. Not while there is work: it would have
 * to be waited for. */
static bool ahead(uint64_t address)
{
    struct fgv_entered entered;
    enter(&entered, true);
    struct fgv_area *area = fgv_area_find(address);
    const uint64_t begin = area ? (address - area->address) / FGV_GRANULE_BYTES : 0;
    uint64_t granule = begin;
    while (area && granule < area->nr_granules && area->granules[granule] != FGV_GRANULE_DEVICE) {
        granule++;
    }
    const bool is_due = area && granule - begin >= MOST_GRANULES && granule < area->nr_granules && is_watched(area) &&
                        (is_settled || area->is_fresh) && fgv_trap_tells_writes();
    if (is_due) {
        atomic_fetch_add_explicit(&fgv_call_watch, FGV_WATCH_ADVANCE, memory_order_seq_cst);
        fgv_contents_use_context(area);
        fgv_contents_give(
            area, granule,
            granule + (area->nr_granules - granule < MOST_GRANULES ? area->nr_granules - granule : MOST_GRANULES),
            FGV_GRANULE_BOTH);
    }
    fgv_granules_leave(&entered);
    return is_due;
}

void fgv_granules_open(void)
{
    static const struct fgv_trap_ops ops = {.touched = touched, .ahead = ahead, .is_urgent = is_host_function};
    fgv_trap_open(&ops);
}

/* ---- work ---- */

/* Which calls are work that may use any memory of the program's, and not only what they name. Copies between the
 * device and other memory are not: who makes them knows both sides. */
static bool is_work(uint16_t call)
{
    if (call >= FGV_CALL_cuMemsetD8_v2 && call <= FGV_CALL_cuMemsetD2D32Async) {
        return true;
    }
    switch (call) {
    case FGV_CALL_cuLaunchKernel:
    case FGV_CALL_cuGraphLaunch:
    case FGV_CALL_cuMemcpyDtoD_v2:
    case FGV_CALL_cuMemcpyDtoDAsync_v2:
    case FGV_CALL_cuMemcpyPeer:
    case FGV_CALL_cuMemcpyPeerAsync:
    case FGV_CALL_cuMemcpy3DAsync_v2:
    case FGV_CALL_cuStreamWriteValue32_v2:
    case FGV_CALL_cuStreamWriteValue64_v2:
    case FGV_CALL_cuStreamBatchMemOp_v2:
        return true;
    default:
        return false;
    }
}

/* Whether the device may have the area: variables belong to the context of the first work that there is. */
static bool is_reached(struct fgv_area *area, const struct fgv_entered *entered)
{
    if (area->stream) {
        return true;
    }
    fgv_thread.context = entered->context;
    fgv_thread.current = entered->current;
    if (entered->current == 0 || fgv_area_adopt(area, entered->context, entered->current) != CUDA_SUCCESS) {
        return false;
    }
    if (area->is_doubtful) {
        area->check(area);
    }
    return true;
}

static void take_all(const struct fgv_entered *entered)
{
    fgv_trap_renew();
    for (struct fgv_area *area = fgv_areas; area; area = area->next) {
        if (area->first_given < area->end_given && is_reached(area, entered) && fgv_contents_send(area)) {
            cuStreamSynchronize(area->stream);
        }
    }
    for (struct fgv_area *area = fgv_areas; area; area = area->next) {
        if (!area->stream) {
            continue;
        }
        if (is_watched(area)) {
            unwatch();
        }
        if (area->first_given < area->end_given) {
            fgv_contents_take(area);
        }
        area->is_fresh = false;
        area->wanted = area->wanted_end = 0;
    }
    is_settled = false;
}

void fgv_granules_before(uint16_t call)
{
    struct fgv_entered entered;
    if (fgv_thread.is_ours || !is_work(call) || fgv_client_is_open() != CUDA_SUCCESS) {
        return;
    }
    enter(&entered, !is_host_function(fgv_thread_id()));
    take_all(&entered);
    fgv_granules_leave(&entered);
}

void fgv_granules_begin_given(struct fgv_area *area, bool is_written)
{
    watch();
    area->is_fresh = true; /* nothing is to be brought */
    fgv_contents_give(area, 0, area->nr_granules,
                      is_written || !fgv_trap_tells_writes() ? FGV_GRANULE_GUEST : FGV_GRANULE_BOTH);
    area->is_fresh = false;
}

void fgv_granules_bring(struct fgv_area *area)
{
    if (!is_watched(area)) {
        watch();
    }
    fgv_contents_use_context(area);
    fgv_contents_give(area, 0, area->nr_granules, FGV_GRANULE_GUEST);
}

void fgv_granules_want(struct fgv_area *area, uint64_t offset, uint64_t bytes)
{
    area->wanted = offset / FGV_GRANULE_BYTES;
    area->wanted_end = (offset + bytes + FGV_GRANULE_BYTES - 1) / FGV_GRANULE_BYTES;
}
