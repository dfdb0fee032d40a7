/*
 * Requests that wait for GPU work. The worker does not make the call until what it waits for is done, so that the call
 * is short; meanwhile it serves others. What "done" means is read off the numbers that sync.c keeps for each stream.
 */
#include "loop/waiters.h"

#include <stdlib.h>
#include <string.h>

#include "client/current.h"
#include "client/handles.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "ivshmem/response.h"
#include "loop/answer.h"
#include "loop/serve.h"
#include "loop/state.h"
#include "track/legacy.h"
#include "track/state.h"
#include "track/sync.h"

#define FGW_MAX_WAITERS 2048u

/* A request that waits for GPU work. */
struct fgw_waiter {
    struct fgw_waiter *next;
    const struct fgw_service *service;
    struct fgw_stream *stream;   /* of FGV_WAITS_STREAM, else NULL */
    struct fgw_context *context; /* of FGV_WAITS_CONTEXT: this one, or NULL for all */
    uint64_t event;              /* the guest's number, of FGV_WAITS_EVENT */
    uint64_t seq;
    struct fgv_wire_header header;
    uint16_t response;
    _Alignas(8) uint8_t fixed[FGW_MAX_REQUEST_BYTES];
};

static bool is_stream_done(const struct fgw_stream *stream, uint64_t seq)
{
    return stream->context->fault != CUDA_SUCCESS || stream->last_seq <= stream->done_seq || stream->done_seq >= seq;
}

static bool is_context_done(const struct fgw_context *context, uint64_t seq)
{
    for (const struct fgw_stream *stream = context->streams; stream; stream = stream->next) {
        if (!is_stream_done(stream, seq)) {
            return false;
        }
    }
    return true;
}

static bool is_satisfied(struct fgw_worker *worker, const struct fgw_waiter *waiter)
{
    void *event;
    switch (waiter->service->waits) {
    case FGV_WAITS_STREAM:
        return is_stream_done(waiter->stream, waiter->seq);
    case FGV_WAITS_EVENT: /* looked up each time: another thread of the guest may destroy it */
        return fgw_worker_find(worker, FGV_HANDLE_EVENT, waiter->event, &event) != CUDA_SUCCESS ||
               worker->driver.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
    default:
        if (waiter->context) {
            return is_context_done(waiter->context, waiter->seq);
        }
        for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
            if (worker->contexts[i] && !is_context_done(worker->contexts[i], waiter->seq)) {
                return false;
            }
        }
        return true;
    }
}

static uint64_t number_at(const struct fgw_request *request, uint16_t offset)
{
    uint64_t number = 0;
    if (offset != FGW_NO_HANDLE) {
        memcpy(&number, (const uint8_t *)request->fixed + offset, sizeof(number));
    }
    return number;
}

/* Which context a request waits for: false when there is none; NULL for all, where what it frees may be in use by any.
 */
static bool context_of(struct fgw_worker *worker, const struct fgw_request *request, struct fgw_context **context)
{
    uint64_t number = 0;
    switch (request->header->call) {
    case FGV_CALL_cuCtxSynchronize:
    case FGV_CALL_cuTexObjectDestroy: /* only kernels of its own context read it */
    case FGV_CALL_cuSurfObjectDestroy:
        *context = worker->current;
        return true;
    case FGV_CALL_cuCtxSynchronize_v2:
        number = ((const struct fgv_request_cuCtxSynchronize_v2 *)request->fixed)->ctx;
        break;
    case FGV_CALL_context_destroy:
        number = ((const struct fgv_request_context_destroy *)request->fixed)->handle;
        break;
    default:
        *context = NULL;
        return true;
    }
    *context = number == 0 ? worker->current : fgw_context_find(worker, number);
    return *context != NULL;
}

/* Marks what the waiter waits for. False: something there cannot be marked, the driver is to answer. */
static bool mark_for(struct fgw_worker *worker, const struct fgw_waiter *waiter)
{
    bool is_marked = true;
    if (waiter->stream) {
        return fgw_stream_mark(worker, waiter->stream);
    }
    if (waiter->service->waits == FGV_WAITS_EVENT) {
        return true; /* it is its own mark */
    }
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = worker->contexts[i];
        bool is_waited_for = context && (!waiter->context || waiter->context == context);
        for (struct fgw_stream *stream = is_waited_for ? context->streams : NULL; stream; stream = stream->next) {
            if (stream->last_seq > stream->marked_seq) {
                is_marked &= fgw_stream_mark(worker, stream);
            }
        }
    }
    return is_marked;
}

/*
 * A synchronisation of which nothing is open: the marks said all that the driver could say, and asking it costs about
 * 2 us. It is asked all the same when kernels may have printed, because that comes out then, and about what is
 * captured, because that is an error.
 */
static bool is_known(struct fgw_worker *worker, const struct fgw_waiter *waiter)
{
    void *event;
    if (fgw_may_print()) {
        return false;
    }
    switch (waiter->service->number) {
    case FGV_CALL_cuStreamSynchronize:
        return waiter->stream->context->fault == CUDA_SUCCESS && !fgw_stream_is_captured(worker, waiter->stream);
    case FGV_CALL_cuCtxSynchronize:
    case FGV_CALL_cuCtxSynchronize_v2:
        return waiter->context && waiter->context->fault == CUDA_SUCCESS && worker->nr_captures == 0;
    case FGV_CALL_cuEventSynchronize:
        return fgw_worker_find(worker, FGV_HANDLE_EVENT, waiter->event, &event) == CUDA_SUCCESS &&
               worker->driver.cuEventQuery(event) == CUDA_SUCCESS;
    default:
        return false;
    }
}

/* What the driver says of an event that is no answer to wait for. Asking may change it: a capture that the event is
 * part of is over then, and a second question gets another error. */
static CUresult event_error(struct fgw_worker *worker, const struct fgw_waiter *waiter)
{
    void *event;
    if (waiter->service->number != FGV_CALL_cuEventSynchronize || worker->nr_captures == 0 ||
        fgw_worker_find(worker, FGV_HANDLE_EVENT, waiter->event, &event) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    CUresult result = worker->driver.cuEventQuery(event);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

bool fgw_waiters_add(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                     uint16_t response)
{
    struct fgw_waiter probe = {.service = service, .header = *request->header, .response = response};
    if (service->waits == FGV_WAITS_STREAM) {
        probe.stream = fgw_stream_find(worker, number_at(request, service->stream_offset));
        if (!probe.stream) {
            return false; /* the handler says that the handle is bad */
        }
        if (probe.stream == &probe.stream->context->legacy) { /* of another one nothing more is waited for */
            fgw_legacy_involve(worker, probe.stream);
        }
    } else if (service->waits == FGV_WAITS_EVENT) {
        probe.event = number_at(request, service->event_offset);
        CUresult result = event_error(worker, &probe);
        if (result != CUDA_SUCCESS) {
            fgw_answer(worker, service, response, result, NULL);
            return true;
        }
    } else if (!context_of(worker, request, &probe.context)) {
        return false;
    }
    probe.seq = worker->track->seq;
    if (is_satisfied(worker, &probe)) {
        if (is_known(worker, &probe)) {
            fgw_answer(worker, service, response, CUDA_SUCCESS, NULL);
            return true;
        }
        return false;
    }
    if (worker->loop->nr_waiters >= FGW_MAX_WAITERS || !mark_for(worker, &probe)) {
        return false;
    }
    struct fgw_waiter *waiter = malloc(sizeof(*waiter));
    if (!waiter) {
        return false;
    }
    memcpy(waiter, &probe, offsetof(struct fgw_waiter, fixed));
    memcpy(waiter->fixed, request->fixed, service->request_bytes);
    if (waiter->stream) {
        waiter->stream->nr_waiters++;
    }
    if (worker->loop->last_waiter) {
        worker->loop->last_waiter->next = waiter;
    } else {
        worker->loop->first_waiter = waiter;
    }
    worker->loop->last_waiter = waiter;
    worker->loop->nr_waiters++;
    return true;
}

static void unlink_waiter(struct fgw_worker *worker, struct fgw_waiter **link, struct fgw_waiter *before)
{
    struct fgw_waiter *waiter = *link;
    *link = waiter->next;
    if (worker->loop->last_waiter == waiter) {
        worker->loop->last_waiter = before;
    }
    worker->loop->nr_waiters--;
    if (waiter->stream) {
        waiter->stream->nr_waiters--;
        fgw_stream_free_if_unused(waiter->stream);
    }
}

/* A synchronisation whose part is done while later work of other threads runs: making the call would wait for that too.
 */
static bool is_overtaken(struct fgw_worker *worker, const struct fgw_waiter *waiter)
{
    switch (waiter->service->number) {
    case FGV_CALL_cuStreamSynchronize:
        return waiter->stream->is_gone || !is_stream_done(waiter->stream, worker->track->seq);
    case FGV_CALL_cuCtxSynchronize:
    case FGV_CALL_cuCtxSynchronize_v2:
        return waiter->context && !is_context_done(waiter->context, worker->track->seq);
    default:
        return false;
    }
}

static void run_waiter(struct fgw_worker *worker, struct fgw_waiter *waiter, bool is_answered)
{
    struct fgw_request request = {.header = &waiter->header, .fixed = waiter->fixed};
    CUresult result = is_answered ? CUDA_SUCCESS : fgw_context_enter(worker, waiter->header.context);
    if (!waiter->service->needs_context && waiter->header.context == 0) {
        result = CUDA_SUCCESS;
    }
    if (is_answered || result != CUDA_SUCCESS) {
        fgw_answer(worker, waiter->service, waiter->response, result, NULL);
    } else {
        fgw_serve_now(worker, waiter->service, &request, waiter->response);
    }
    free(waiter);
}

static bool run(struct fgw_worker *worker, bool only_answers)
{
    bool is_progress = false;
    struct fgw_waiter **link = &worker->loop->first_waiter;
    struct fgw_waiter *before = NULL;
    while (*link) {
        struct fgw_waiter *waiter = *link;
        const bool is_over = is_satisfied(worker, waiter);
        const bool is_answered = is_over && (is_overtaken(worker, waiter) || is_known(worker, waiter));
        if (!is_over || (only_answers && !is_answered)) {
            before = waiter;
            link = &waiter->next;
            continue;
        }
        is_progress = true;
        unlink_waiter(worker, link, before);
        run_waiter(worker, waiter, is_answered);
        link = &worker->loop->first_waiter; /* a handler may have answered others: context_destroy */
        before = NULL;
    }
    return is_progress;
}

bool fgw_waiters_run(struct fgw_worker *worker)
{
    return run(worker, false);
}

void fgw_waiters_answer(struct fgw_worker *worker)
{
    run(worker, true);
}

void fgw_waiters_rouse(struct fgw_worker *worker)
{
    for (const struct fgw_waiter *waiter = worker->loop->first_waiter; waiter; waiter = waiter->next) {
        fgv_respond_soon(&worker->region, &worker->layout, waiter->response);
    }
    for (const struct fgw_stream *stream = worker->track->busy; stream; stream = stream->next_busy) {
        if (stream->first_due) {
            fgv_chunk_complete_soon(&worker->region, &worker->layout, stream->first_due->chunk);
        }
    }
}

void fgw_waiters_drop(struct fgw_worker *worker)
{
    while (worker->loop->first_waiter) {
        struct fgw_waiter *waiter = worker->loop->first_waiter;
        unlink_waiter(worker, &worker->loop->first_waiter, NULL);
        free(waiter);
    }
}

void fgw_waiters_drop_context(struct fgw_worker *worker, struct fgw_context *context)
{
    struct fgw_waiter **link = &worker->loop->first_waiter;
    struct fgw_waiter *before = NULL;
    while (*link) {
        struct fgw_waiter *waiter = *link;
        bool is_its = waiter->context == context || (waiter->stream && waiter->stream->context == context);
        if (!is_its) {
            before = waiter;
            link = &waiter->next;
            continue;
        }
        unlink_waiter(worker, link, before);
        fgw_answer(worker, waiter->service, waiter->response, CUDA_ERROR_CONTEXT_IS_DESTROYED, NULL);
        free(waiter);
    }
}
