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
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "call/call.h"
#include "context/host_function.h"
#include "copy/copy.h"
#include "cuda_api/prototypes.h"
#include "managed/trap.h"
#include "region/client.h"

/* A touch brings no more at once: others wait for it. */
#define MOST_GRANULES ((UINT64_C(32) << 20) / FGV_GRANULE_BYTES)

/* So long a touch may wait before a line says so. */
#define LONG_NS UINT64_C(10000000000)

#define POPULATE_WRITE 23 /* of madvise, since Linux 5.14 */

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

static void use_context(const struct fgv_area *area)
{
    fgv_thread.context = area->context;
    fgv_thread.current = area->context_handle;
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

/* ---- bytes of some granules ---- */

static uint8_t *shadow_of(const struct fgv_area *area, uint64_t granule)
{
    return area->shadow + granule * FGV_GRANULE_BYTES;
}

/* One copy between the device and the shadow, of bytes that lie in the area. */
static CUresult copy(const struct fgv_area *area, uint64_t address, uint64_t bytes, bool is_to_device)
{
    const struct fgv_side device = {.address = address, .kind = FGV_MEMORY_DEVICE};
    const struct fgv_side shadow = {.address = (uint64_t)(uintptr_t)(area->shadow + (address - area->address))};
    return is_to_device ? fgv_copy_range(&device, &shadow, bytes, area->stream, false)
                        : fgv_copy_range(&shadow, &device, bytes, area->stream, true);
}

/* Some granules; of variables nothing else. */
static CUresult copy_granules(const struct fgv_area *area, uint64_t first, uint64_t end, bool is_to_device)
{
    const uint64_t address = fgv_area_address(area, first), address_end = address + fgv_area_bytes(area, first, end);
    CUresult result = fgv_client_is_open();
    if (result == CUDA_SUCCESS && !area->variables) {
        return copy(area, address, address_end - address, is_to_device);
    }
    for (size_t i = 0; i < area->nr_variables && result == CUDA_SUCCESS; i++) {
        const struct fgv_variable *variable = &area->variables[i];
        const uint64_t variable_end = variable->address + variable->bytes;
        const uint64_t from = variable->address > address ? variable->address : address;
        const uint64_t to = variable_end < address_end ? variable_end : address_end;
        if (from < to) {
            result = copy(area, from, to - from, is_to_device);
        }
    }
    return result;
}

static void fetch(const struct fgv_area *area, uint64_t first, uint64_t end)
{
    CUresult result = copy_granules(area, first, end, false);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) {
        fgv_log_cause(FGV_CAUSE_MANAGED,
                      "managed memory cannot be brought back from the device (error %d): the program sees what it had "
                      "before",
                      (int)result);
    }
}

/* Makes pages that were never written to, if that matters, at once and not by a fault for each. */
static void fill(const struct fgv_area *area, uint64_t first, uint64_t end)
{
    if (!fgv_trap_needs_contents()) {
        return;
    }
    volatile uint8_t *at = shadow_of(area, first);
    const uint64_t bytes = fgv_area_bytes(area, first, end);
    if (madvise((void *)(uintptr_t)at, bytes, POPULATE_WRITE) != 0) {
        for (uint64_t i = 0; i < bytes; i += FGV_PAGE_BYTES) {
            at[i] = at[i];
        }
    }
}

/* ---- a touch ---- */

/* The end of the granules from `first` on that are in the same state. */
static uint64_t run_end(const struct fgv_area *area, uint64_t first, uint64_t end)
{
    uint64_t granule = first + 1;
    while (granule < end && area->granules[granule] == area->granules[first]) {
        granule++;
    }
    return granule;
}

static bool give_run(struct fgv_area *area, uint64_t first, uint64_t end, enum fgv_granule right)
{
    const uint64_t address = fgv_area_address(area, first), bytes = fgv_area_bytes(area, first, end);
    bool is_given;
    if (area->granules[first] >= right) {
        return true;
    }
    if (area->granules[first] == FGV_GRANULE_BOTH) {
        is_given = fgv_trap_make_writable(address, bytes);
    } else {
        if (area->is_fresh) {
            fill(area, first, end);
        } else {
            fetch(area, first, end);
        }
        is_given = fgv_trap_give(address, bytes, right == FGV_GRANULE_GUEST);
    }
    if (is_given) {
        memset(area->granules + first, right, end - first);
    }
    return is_given;
}

static bool give(struct fgv_area *area, uint64_t first, uint64_t end, enum fgv_granule right)
{
    if (area->first_given >= area->end_given) {
        area->first_given = first;
        area->end_given = end;
    }
    area->first_given = first < area->first_given ? first : area->first_given;
    area->end_given = end > area->end_given ? end : area->end_given;
    bool is_given = true;
    for (uint64_t granule = first; granule < end && is_given;) {
        const uint64_t next = run_end(area, granule, end);
        is_given = give_run(area, granule, next, right);
        granule = next;
    }
    return is_given;
}

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
                      "program, FAIRGV_MANAGED=host lets both use that memory at the same time");
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

/* Waits for the work that is under way. The door is closed: nothing is added meanwhile. */
static void settle(const struct fgv_area *area)
{
    if (is_settled || fgv_client_is_open() != CUDA_SUCCESS ||
        atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0) {
        return;
    }
    use_context(area);
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
    use_context(area);
    uint64_t first, end;
    choose(area, granule, right, &first, &end);
    return give(area, first, end, right) || give(area, 0, area->nr_granules, FGV_GRANULE_GUEST); /* see take() */
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
        use_context(area);
        give(area, granule,
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

/* Sends what the program has written. It may read it still. */
static bool send_written(struct fgv_area *area)
{
    bool is_sent = false;
    for (uint64_t granule = area->first_given; granule < area->end_given;) {
        const uint64_t next = run_end(area, granule, area->end_given);
        if (area->granules[granule] == FGV_GRANULE_GUEST) {
            fgv_trap_make_readable(fgv_area_address(area, granule), fgv_area_bytes(area, granule, next));
            use_context(area);
            is_sent |= copy_granules(area, granule, next, true) == CUDA_SUCCESS;
        }
        granule = next;
    }
    return is_sent;
}

static void take(struct fgv_area *area)
{
    const uint64_t bytes = fgv_area_bytes(area, area->first_given, area->end_given);
    if (!fgv_trap_take(fgv_area_address(area, area->first_given), bytes)) {
        fgv_trap_take(area->address, area->bytes); /* too many pieces for the kernel: all of it is one */
    }
    memset(area->granules + area->first_given, FGV_GRANULE_DEVICE, area->end_given - area->first_given);
    area->first_given = area->end_given = 0;
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
        if (area->first_given < area->end_given && is_reached(area, entered) && send_written(area)) {
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
            take(area);
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
    give(area, 0, area->nr_granules, is_written || !fgv_trap_tells_writes() ? FGV_GRANULE_GUEST : FGV_GRANULE_BOTH);
    area->is_fresh = false;
}

void fgv_granules_bring(struct fgv_area *area)
{
    if (!is_watched(area)) {
        watch();
    }
    use_context(area);
    give(area, 0, area->nr_granules, FGV_GRANULE_GUEST);
}

void fgv_granules_want(struct fgv_area *area, uint64_t offset, uint64_t bytes)
{
    area->wanted = offset / FGV_GRANULE_BYTES;
    area->wanted_end = (offset + bytes + FGV_GRANULE_BYTES - 1) / FGV_GRANULE_BYTES;
}
