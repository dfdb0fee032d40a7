/* Host functions of the guest: see host_function.h. What runs on the driver's threads comes first. */
#define _GNU_SOURCE
#include "calls/host_function.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/count.h"
#include "calls/state.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "ivshmem/response.h"
#include "page/bell.h"
#include "page/layout.h"
#include "track/behind.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/turn.h"

#define SPIN_NS     UINT64_C(20000)
#define NAP_MIN_NS  UINT64_C(20000)
#define NAP_MAX_NS  UINT64_C(1000000)
#define TURN_NAP_NS UINT64_C(5000000)
#define STUCK_NAPS  4u /* the worker's loop has not moved for so many: it is in a call of the driver */

static bool is_over(struct fgw_worker *worker, struct fgw_host *host)
{
    return atomic_load_explicit(&worker->calls->hosts.is_ending, memory_order_acquire) ||
           atomic_load_explicit(host ? &host->is_let_go : &worker->calls->hosts.are_nodes_let_go, memory_order_acquire);
}

static void word_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t nap_ns, bool is_shared)
{
    const struct timespec nap = {.tv_nsec = (long)nap_ns};
    syscall(SYS_futex, word, is_shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
}

/* Waits until the guest's thread waits at the mailbox. A futex of a VM is not ours: there the timeout is the nap. */
static bool guest_await(struct fgw_worker *worker, struct fgw_host *host, _Atomic uint32_t *state)
{
    uint64_t nap_ns = NAP_MIN_NS;
    const uint64_t begun_ns = fgw_clock_ns();
    for (;;) {
        /* acquire: pairs with the guest's release when its function has returned */
        uint32_t seen = atomic_load_explicit(state, memory_order_acquire);
        if (seen == FGV_SLOT_WAITING || seen == FGV_SLOT_PARKED) {
            return true;
        }
        if (is_over(worker, host)) {
            return false;
        }
        if (fgw_clock_ns() - begun_ns < SPIN_NS) {
            __builtin_ia32_pause();
            continue;
        }
        word_wait(state, seen, nap_ns, true);
        nap_ns = nap_ns * 2 < NAP_MAX_NS ? nap_ns * 2 : NAP_MAX_NS;
    }
}

static void guest_run(struct fgw_worker *worker, struct fgw_host *host, uint64_t function, CUresult status)
{
    struct fgw_hosts *hosts = &worker->calls->hosts;
    const struct fgv_post post = {.function = function, .status = (uint32_t)status};
    pthread_mutex_lock(&hosts->posting);
    int32_t slot = atomic_load(&hosts->mailbox);
    if (slot >= 0) {
        struct fgv_response *slots = (struct fgv_response *)(worker->region.base + worker->layout.responses.offset);
        _Atomic uint32_t *state = &slots[slot].state;
        if (guest_await(worker, host, state) &&
            fgv_respond(&worker->region, &worker->layout, (uint32_t)slot, CUDA_SUCCESS, &post, sizeof(post))) {
            guest_await(worker, host, state);
        }
    }
    pthread_mutex_unlock(&hosts->posting);
}

/* What stands behind the function begins when the driver's thread leaves: not before the worker has the grant for it.
 */
static void turn_await(struct fgw_worker *worker, struct fgw_host *host)
{
    unsigned int seen_rounds = atomic_load(&worker->calls->hosts.nr_rounds);
    unsigned int nr_still = 0;
    while (atomic_load_explicit(&host->state, memory_order_acquire) == FGW_HOST_RETURNED && !is_over(worker, host)) {
        word_wait(&host->state, FGW_HOST_RETURNED, TURN_NAP_NS, false);
        unsigned int nr_rounds = atomic_load(&worker->calls->hosts.nr_rounds);
        nr_still = nr_rounds == seen_rounds ? nr_still + 1 : 0;
        seen_rounds = nr_rounds;
        if (nr_still >= STUCK_NAPS) {
            return;
        }
    }
}

static void run(struct fgw_host *host, CUresult status)
{
    struct fgw_worker *worker = fgw_the_worker;
    atomic_store(&host->state, FGW_HOST_RUNNING);
    if (!is_over(worker, host)) {
        guest_run(worker, host, host->function, status);
        atomic_store(&host->state, FGW_HOST_RETURNED);
        if (atomic_load(&host->behind->is_followed)) {
            turn_await(worker, host);
        }
    }
    atomic_store(&host->state, FGW_HOST_FINISHED);
}

static void run_function(void *data)
{
    run(data, CUDA_SUCCESS);
}

static void run_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    run(data, status);
}

/* Of a node. */
static void run_number(void *number)
{
    guest_run(fgw_the_worker, NULL, (uint64_t)(uintptr_t)number, CUDA_SUCCESS);
}

/* Of nodes that stage a copy, which are known by these (staging.h). Without a number there is nothing to do. */
static void run_fill(void *number)
{
    if (number) {
        run_number(number);
    }
}

static void run_drain(void *number)
{
    if (number) {
        run_number(number);
    }
}

/* ---- what follows runs on the worker's thread ---- */

void fgw_host_init(struct fgw_worker *worker)
{
    pthread_mutex_init(&worker->calls->hosts.posting, NULL);
    atomic_store(&worker->calls->hosts.mailbox, -1);
}

void fgw_host_round(struct fgw_worker *worker)
{
    unsigned int nr = atomic_load_explicit(&worker->calls->hosts.nr_rounds, memory_order_relaxed);
    atomic_store_explicit(&worker->calls->hosts.nr_rounds, nr + 1, memory_order_relaxed); /* one writer */
}

bool fgw_host_is_launch(uint16_t call)
{
    return call == FGV_CALL_cuLaunchHostFunc || call == FGV_CALL_cuStreamAddCallback;
}

bool fgw_host_has_room(const struct fgw_worker *worker)
{
    return worker->track->behind.nr < FGW_MAX_BEHIND;
}

static bool poll_one(struct fgw_worker *worker, struct fgw_host *host, bool *wants_turn)
{
    uint32_t state = atomic_load_explicit(&host->state, memory_order_acquire);
    if (state == FGW_HOST_RETURNED && host->behind->number != 0) {
        if (atomic_load(&host->behind->is_followed) && !fgw_turn_begin(worker)) {
            *wants_turn = true;
            return false;
        }
        fgw_behind_release(worker, host->behind);
        if (atomic_compare_exchange_strong(&host->state, &state, FGW_HOST_RELEASED)) {
            syscall(SYS_futex, &host->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        }
        return true;
    }
    if (state == FGW_HOST_FINISHED) {
        fgw_behind_close(worker, host->behind);
        atomic_store(&host->state, FGW_HOST_FREE);
        return true;
    }
    return false;
}

bool fgw_host_poll(struct fgw_worker *worker)
{
    bool is_progress = false;
    bool wants_turn = false;
    for (uint32_t i = 0; i < FGW_MAX_BEHIND; i++) {
        is_progress |= poll_one(worker, &worker->calls->hosts.items[i], &wants_turn);
    }
    fgw_turn_set_wanted_behind(worker, wants_turn);
    return is_progress;
}

void fgw_host_let_go(struct fgw_worker *worker, const struct fgw_context *context)
{
    /* Whose nodes are which is not known: those of other contexts need their functions. */
    atomic_store(&worker->calls->hosts.are_nodes_let_go, fgw_context_count(worker) == 1);
    for (uint32_t i = 0; i < FGW_MAX_BEHIND; i++) {
        struct fgw_host *host = &worker->calls->hosts.items[i];
        if (atomic_load(&host->state) != FGW_HOST_FREE && host->context == context) {
            atomic_store(&host->is_let_go, true);
        }
    }
}

/* The driver runs nothing of a context that is gone: what it had not begun it never will. */
void fgw_host_gone(struct fgw_worker *worker, const struct fgw_context *context)
{
    atomic_store(&worker->calls->hosts.are_nodes_let_go, false);
    for (uint32_t i = 0; i < FGW_MAX_BEHIND; i++) {
        struct fgw_host *host = &worker->calls->hosts.items[i];
        uint32_t submitted = FGW_HOST_SUBMITTED;
        if (host->context == context) {
            atomic_compare_exchange_strong(&host->state, &submitted, FGW_HOST_FINISHED);
            host->context = NULL;
        }
    }
    fgw_host_poll(worker);
}

void fgw_host_end(struct fgw_worker *worker)
{
    atomic_store_explicit(&worker->calls->hosts.is_ending, true, memory_order_release);
}

static struct fgw_host *host_new(struct fgw_worker *worker, struct fgw_context *context, uint64_t function)
{
    struct fgw_hosts *hosts = &worker->calls->hosts;
    for (uint32_t i = 0; i < FGW_MAX_BEHIND; i++) {
        struct fgw_host *host = &hosts->items[i];
        if (atomic_load(&host->state) == FGW_HOST_FREE) {
            host->function = function;
            host->behind = fgw_behind_open(worker, i);
            host->context = context;
            atomic_store(&host->is_let_go, false);
            atomic_store(&host->state, FGW_HOST_SUBMITTED);
            return host;
        }
    }
    return NULL;
}

static const CUhostFn functions_of_nodes[FGW_HOST_NODE_KINDS] = {
    [FGV_HOST_NODE_PROGRAM] = run_number, [FGV_HOST_NODE_FILL] = run_fill, [FGV_HOST_NODE_DRAIN] = run_drain};

void fgw_host_node(struct fgw_worker *worker, uint64_t function, enum fgv_host_node kind, CUDA_HOST_NODE_PARAMS *params)
{
    *params = (CUDA_HOST_NODE_PARAMS){.fn = functions_of_nodes[kind], .userData = (void *)(uintptr_t)function};
    worker->calls->has_staging |= kind != FGV_HOST_NODE_PROGRAM;
    fgw_behind_note_node(worker);
}

enum fgv_host_node fgw_host_node_kind(const CUDA_HOST_NODE_PARAMS *params)
{
    enum fgv_host_node kind = FGV_HOST_NODE_PROGRAM;
    while (kind < FGW_HOST_NODE_KINDS && functions_of_nodes[kind] != params->fn) {
        kind++;
    }
    return kind;
}

static CUresult launch(struct fgw_worker *worker, uint64_t stream_number, uint64_t function, bool is_callback)
{
    const struct fgv_driver *driver = &worker->driver;
    struct fgw_stream *stream = fgw_stream_find(worker, stream_number);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (is_callback ? !driver->cuStreamAddCallback : !driver->cuLaunchHostFunc) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (stream != &stream->context->legacy && fgw_stream_is_captured(worker, stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a graph would run it again, which this one is not for */
    }
    if (atomic_load(&worker->calls->hosts.mailbox) < 0) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->nr_unmarked != 0) {
        fgw_stream_mark(worker, stream); /* what stands before it ends for itself */
    }
    struct fgw_host *host = host_new(worker, stream->context, function);
    if (!host) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = is_callback ? driver->cuStreamAddCallback(stream->native, run_callback, host, 0)
                                  : driver->cuLaunchHostFunc(stream->native, run_function, host);
    if (result != CUDA_SUCCESS) {
        atomic_store(&host->state, FGW_HOST_FINISHED);
        return result;
    }
    fgw_behind_put_behind(worker, stream, host->behind->number);
    return CUDA_SUCCESS;
}

CUresult fgw_serve_cuLaunchHostFunc(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLaunchHostFunc *fixed = request->fixed;
    (void)reply;
    return launch(worker, fixed->stream, fixed->function, false);
}

CUresult fgw_serve_cuStreamAddCallback(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuStreamAddCallback *fixed = request->fixed;
    (void)reply;
    return launch(worker, fixed->stream, fixed->function, true);
}

CUresult fgw_serve_host_mailbox(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_host_mailbox *fixed = request->fixed;
    (void)reply;
    if (fixed->slot >= worker->layout.nr_responses) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    atomic_store(&worker->calls->hosts.mailbox, (int32_t)fixed->slot);
    return CUDA_SUCCESS;
}
