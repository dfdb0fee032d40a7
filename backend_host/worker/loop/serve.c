/*
 * From a record in the ring to a handler and to an answer.
 *
 * Whatever decides anything is copied out of the ring once, before it is looked at: the header and the call's fixed
 * struct. Payload bytes are used in place, since changing them under the driver changes only what the sender computes
 * with. A request that costs the GPU while this worker may not submit, and whatever must keep its place behind it, goes
 * into a private backlog, whole; calls that are free go on.
 *
 * A malformed request is answered with an error and counted. Nothing is logged for one: a hostile guest could fill a
 * disk.
 */
#include "loop/serve.h"

#include <string.h>

#include "base/count.h"
#include "calls/context.h"
#include "calls/copy.h"
#include "calls/host_function.h"
#include "calls/state.h"
#include "calls/stream.h"
#include "calls/swap.h"
#include "client/arena.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "loop/answer.h"
#include "loop/lacking.h"
#include "loop/state.h"
#include "loop/waiters.h"
#include "page/layout.h"
#include "page/motion.h"
#include "parts/parts.h"
#include "parts/state.h"
#include "parts/take.h"
#include "replay/replay.h"
#include "track/behind.h"
#include "track/ends.h"
#include "track/gate.h"
#include "track/latency.h"
#include "track/recorded.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/beside.h"
#include "turn/moves.h"
#include "turn/queue.h"
#include "turn/round.h"
#include "turn/space_gate.h"
#include "turn/turn.h"

#define FGW_REPLY_MAX_BYTES FGV_RESPONSE_PAYLOAD_BYTES

/* Loading may take the driver long (it compiles), and nobody looks at the device meanwhile: what is about to end is let
 * end, or all of that time would be charged. */
#define FGW_SETTLE_NS UINT64_C(200000)

/* A record in the backlog, whole, aligned to 8: header and fixed struct follow, then the payload. */
struct fgw_backlog_entry {
    uint32_t entry_bytes;
    uint32_t payload_bytes; /* of the record: header, fixed struct and payload */
    uint16_t response;
    uint16_t reserved[3];
};

/* Costs the GPU nothing and ends in its place among the work of a stream all the same. */
static bool keeps_place(uint16_t call)
{
    switch (call) {
    case FGV_CALL_cuStreamWaitEvent:
    case FGV_CALL_cuEventRecord:
    case FGV_CALL_cuEventRecordWithFlags:
    case FGV_CALL_cuStreamWaitValue32_v2:
    case FGV_CALL_cuStreamWaitValue64_v2:
    case FGV_CALL_cuStreamWriteValue32_v2:
    case FGV_CALL_cuStreamWriteValue64_v2:
    case FGV_CALL_cuStreamBatchMemOp_v2:
    case FGV_CALL_cuMemFreeAsync:
        return true;
    default:
        return fgw_host_is_launch(call);
    }
}

bool fgw_serve_now(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                   uint16_t response)
{
    _Alignas(8) uint8_t reply[FGW_REPLY_MAX_BYTES];
    memset(reply, 0, service->reply_bytes);
    response = fgw_answer_first(worker, service, request, response);
    if (service->number == FGV_CALL_context_destroy && fgw_context_is_primary(worker, request)) {
        fgw_replay_give_up(worker);
    }
    struct fgw_stream *stream = NULL;
    if (service->cost != FGV_COST_NONE || keeps_place(service->number)) {
        uint64_t number = 0;
        if (service->stream_offset != FGW_NO_HANDLE) {
            memcpy(&number, (const uint8_t *)request->fixed + service->stream_offset, sizeof(number));
        }
        stream = fgw_stream_find(worker, number);
    } else if (service->number == FGV_CALL_cuStreamDestroy_v2) {
        fgw_stream_before_destroy(worker, request);
    }
    if (stream) {
        fgw_behind_before(worker, service, stream);
    }
    if (stream && service->cost != FGV_COST_NONE) {
        fgw_gate_submit(worker, stream);
        fgw_beside_prepare(worker, stream);
        fgw_round_submit(worker, stream, request);
        fgw_latency_begin(worker, stream);
    } else if (stream) {
        fgw_gate_prepare(worker, stream, service->number);
    }
    const bool may_lack = service->cost == FGV_COST_NONE; /* what is submitted places nothing */
    if (may_lack) {
        fgw_lacking_begin(worker);
    }
    CUresult result = service->serve(worker, request, service->reply_bytes ? reply : NULL);
    if (result == CUDA_ERROR_NOT_READY && fgw_recorded_tells_done(worker, service, request)) {
        result = CUDA_SUCCESS;
    }
    if (worker->track->latency.measuring) {
        fgw_latency_submitted(worker, result);
    }
    if (stream && result == CUDA_SUCCESS && !(worker->nr_captures != 0 && fgw_stream_is_captured(worker, stream))) {
        if (service->cost != FGV_COST_NONE) {
            fgw_sync_submitted(worker, stream);
        } else {
            fgw_behind_after(worker, service, request, stream);
            if (service->number != FGV_CALL_cuMemFreeAsync) { /* a pool that gets memory back puts nothing there */
                fgw_stream_touch(worker, stream);
            }
            fgw_recorded_note(worker, service, request, stream);
            fgw_gate_close(worker, stream, request);
        }
    }
    if (may_lack && fgw_lacking_keeps(worker, service, request, response, result)) {
        return false;
    }
    if (service->has_payload || service->cost == FGV_COST_COPY) {
        fgw_note_fault(worker,
                       result); /* first: who sees that a chunk failed finds the error at every call from then on */
        fgw_copy_settle(worker, request, stream, result);
    }
    if (service->waits != FGV_WAITS_NONE && fgw_may_print()) {
        fgw_printing_check(worker); /* before the answer: who waited finds what kernels printed */
    }
    fgw_answer(worker, service, response, result, reply);
    return true;
}

/* A record whose header and fixed struct are private. */
struct fgw_parsed {
    const struct fgw_service *service;
    struct fgv_wire_header header;
    struct fgw_request request;
    _Alignas(8) uint8_t fixed[FGW_MAX_REQUEST_BYTES];
};

/* False: refused. Every byte that is looked at is read once. */
static bool parse(struct fgw_parsed *parsed, const uint8_t *bytes, uint32_t nr_bytes)
{
    if (nr_bytes < sizeof(parsed->header)) {
        return false;
    }
    memcpy(&parsed->header, bytes, sizeof(parsed->header));
    parsed->service = fgw_service_find(parsed->header.call);
    if (!parsed->service || parsed->header.flags != 0) {
        return false;
    }
    uint32_t head_bytes = (uint32_t)sizeof(parsed->header) + parsed->service->request_bytes;
    if (parsed->service->request_bytes > sizeof(parsed->fixed) || parsed->service->reply_bytes > FGW_REPLY_MAX_BYTES ||
        nr_bytes < head_bytes || (nr_bytes > head_bytes && !parsed->service->has_payload)) {
        return false;
    }
    memcpy(parsed->fixed, bytes + sizeof(parsed->header), parsed->service->request_bytes);
    parsed->request = (struct fgw_request){
        .header = &parsed->header,
        .fixed = parsed->fixed,
        .payload = bytes + head_bytes,
        .payload_bytes = nr_bytes - head_bytes,
    };
    return true;
}

/* Nothing runs on the device for it: it becomes part of a graph, whose launches are what costs. */
static bool is_recorded(struct fgw_worker *worker, const struct fgw_parsed *parsed)
{
    uint64_t number = 0;
    if (worker->nr_captures == 0 || fgw_context_enter(worker, parsed->header.context) != CUDA_SUCCESS) {
        return false;
    }
    if (parsed->service->stream_offset != FGW_NO_HANDLE) {
        memcpy(&number, parsed->fixed + parsed->service->stream_offset, sizeof(number));
    }
    return fgw_is_recording(worker, number);
}

/* The stream of a request, in its context; NULL when it names none. */
static struct fgw_stream *stream_of(struct fgw_worker *worker, const struct fgw_parsed *parsed)
{
    uint64_t number = 0;
    if (fgw_context_enter(worker, parsed->header.context) != CUDA_SUCCESS) {
        return NULL;
    }
    if (parsed->service->stream_offset != FGW_NO_HANDLE) {
        memcpy(&number, parsed->fixed + parsed->service->stream_offset, sizeof(number));
    }
    return fgw_stream_find(worker, number);
}

/* A round trip is counted as it is answered. */
static void count_call(struct fgw_worker *worker, uint16_t response)
{
    fgw_count(&worker->slot->nr_calls, 1);
    if (response == FGV_NO_RESPONSE) {
        fgw_count(&worker->slot->nr_sent, 1);
    }
}

/* A launch that goes in parts. False: not all of it is out. */
static bool serve_parts(struct fgw_worker *worker, struct fgw_parsed *parsed, uint16_t response)
{
    CUresult result;
    const enum fgw_parts_state state = fgw_parts_submit(worker, parsed->service, &parsed->request, &result);
    if (state == FGW_PARTS_MORE) {
        return false;
    }
    if (fgw_motion(&worker->grantee) == FGW_MOTION_CHANGE) {
        fgw_turn_set_displaced(worker, true); /* the next one begins on the other device */
    }
    count_call(worker, response);
    if (state == FGW_PARTS_WHOLE) {
        fgw_serve_now(worker, parsed->service, &parsed->request, response);
        return true;
    }
    fgw_count(&worker->slot->nr_launches, 1);
    fgw_answer(worker, parsed->service, response, result, NULL);
    return true;
}

/* Whether the device may have one more now, and as what. */
static bool may_submit(struct fgw_worker *worker, const struct fgw_parsed *parsed, enum fgw_submission *kind)
{
    if (worker->turn->is_displaced || !fgw_queue_has_room(worker)) {
        return false;
    }
    const bool is_copy = fgw_copy_bytes(&parsed->request) >= FGW_BULK_BYTES;
    if (worker->track->nr_beside != 0 && !fgw_turn_is_user(worker) &&
        (is_copy ? fgw_beside_is_full(worker) : fgw_beside_is_before(stream_of(worker, parsed)))) {
        fgw_move_out(worker); /* a turn would be of no use yet */
        return false;
    }
    if (is_copy) {
        *kind = fgw_beside_begin(worker, &parsed->request) ? FGW_SUBMIT_BESIDE : FGW_SUBMIT_COPY;
    }
    return *kind == FGW_SUBMIT_BESIDE ||
           (fgw_turn_begin(worker) &&
            !(fgw_queue_is_deep(worker) && !fgw_queue_fits_stream(worker, stream_of(worker, parsed))));
}

/* The driver looks at the memory that it names, or at its handle, so that has to be there. */
static bool needs_memory(uint16_t call)
{
    switch (call) {
    case FGV_CALL_cuTexObjectCreate:
    case FGV_CALL_ipc_export:
    case FGV_CALL_physical_export:
    case FGV_CALL_cuMemMap:
    case FGV_CALL_cuMemSetAccess:
    case FGV_CALL_cuMemUnmap:
    case FGV_CALL_host_place:
    case FGV_CALL_host_unplace:
    case FGV_CALL_yield_attach:
        return true;
    default:
        return false;
    }
}

/* Likewise, of what is recorded in a graph; and what a stream waits for or writes, where that lies. It waits for memory
 * that is off the device alone: what is to go may stay for work that this lets end. */
static bool misses_memory(struct fgw_worker *worker, const struct fgw_parsed *parsed, bool is_recorded)
{
    if (worker->calls->span.nr_out == 0) {
        return false;
    }
    switch (parsed->header.call) {
    case FGV_CALL_graph_add_node:
    case FGV_CALL_graph_set_node:
    case FGV_CALL_graph_instantiate:
    case FGV_CALL_graph_update:
        return true;
    default:
        return is_recorded || fgw_value_is_out(worker, &parsed->request);
    }
}

static enum fgw_again serve_again(struct fgw_worker *worker, const struct fgw_lacking_record *record)
{
    struct fgw_parsed parsed;
    CUresult result = parse(&parsed, record->bytes, record->nr_bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS &&
        ((worker->turn->is_displaced && needs_memory(parsed.header.call)) || misses_memory(worker, &parsed, false))) {
        if (!record->is_last) {
            return FGW_AGAIN_MISSES;
        }
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && (parsed.service->needs_context || parsed.header.context != 0)) {
        result = fgw_context_enter(worker, parsed.header.context);
    }
    if (result != CUDA_SUCCESS) {
        fgw_answer(worker, NULL, record->response, result, NULL);
        return FGW_AGAIN_ANSWERED;
    }
    return fgw_serve_now(worker, parsed.service, &parsed.request, record->response) ? FGW_AGAIN_ANSWERED
                                                                                    : FGW_AGAIN_LACKS;
}

bool fgw_serve_lacking(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_lacking_record record;
    if (fgw_swap_is_moving(worker) || !fgw_lacking_is_due(worker, now_ns, &record)) {
        return false;
    }
    const enum fgw_again again = serve_again(worker, &record);
    fgw_lacking_tried(worker, now_ns, again);
    return again == FGW_AGAIN_ANSWERED;
}

/* Carries it out, queues it as a waiter, or says no because it would have to submit. */
static bool serve(struct fgw_worker *worker, struct fgw_parsed *parsed, uint16_t response)
{
    const struct fgw_service *service = parsed->service;
    if (worker->turn->is_displaced) {
        fgw_swap_wake(worker);
    }
    if (fgw_swap_is_moving(worker) || (worker->turn->is_displaced && needs_memory(service->number))) {
        return false; /* nothing is made, freed or used of memory that is on its way */
    }
    if (service->number == FGV_CALL_cuLaunchKernel && worker->slicing->parts.variant) {
        return serve_parts(worker, parsed, response);
    }
    const bool costs = service->cost != FGV_COST_NONE;
    const bool runs = costs && !is_recorded(worker, parsed);
    if (misses_memory(worker, parsed, costs && !runs)) {
        return false;
    }
    if ((runs || keeps_place(service->number)) && fgw_gate_is_full(worker)) {
        fgw_turn_set_gated(worker, true);
        return false;
    }
    enum fgw_submission kind = FGW_SUBMIT_WORK;
    if (runs && (fgw_space_gate_is_shut(worker) || !may_submit(worker, parsed, &kind))) {
        return false;
    }
    if (fgw_host_is_launch(service->number) && !fgw_host_has_room(worker)) {
        fgw_turn_set_gated(worker, true);
        return false;
    }
    if (service->number == FGV_CALL_cuLibraryLoadData || service->number == FGV_CALL_cuModuleLoadDataEx) {
        fgw_sync_settle(worker, FGW_SETTLE_NS);
        fgw_turn_give_back(worker);
    }
    CUresult result = fgw_context_enter(worker, parsed->header.context);
    if (result != CUDA_SUCCESS && (service->needs_context || parsed->header.context != 0)) {
        count_call(worker, response);
        fgw_copy_settle(worker, &parsed->request, NULL, result);
        if (runs) {
            fgw_space_gate_end(worker);
        }
        fgw_refuse(worker, response, result);
        return true;
    }
    if (service->number == FGV_CALL_cuLaunchKernel) {
        enum fgw_parts_state state = fgw_parts_take(worker, &parsed->request, runs);
        if (state != FGW_PARTS_WHOLE) {
            return state == FGW_PARTS_TAKEN && serve_parts(worker, parsed, response);
        }
    }
    if (service->number == FGV_CALL_cuGraphLaunch && runs && fgw_space_gate_holds(worker, FGW_BLOCKS_UNKNOWN)) {
        return false;
    }
    count_call(worker, response);
    if (service->cost != FGV_COST_NONE && worker->current && worker->current->fault != CUDA_SUCCESS) {
        /* Nothing is submitted any more where nothing is watched, and charged, any more. */
        fgw_copy_settle(worker, &parsed->request, NULL, worker->current->fault);
        fgw_answer(worker, service, response, worker->current->fault, NULL);
        return true;
    }
    if (service->waits == FGV_WAITS_NONE || !fgw_waiters_add(worker, service, &parsed->request, response)) {
        fgw_track_submits(worker, kind);
        fgw_serve_now(worker, service, &parsed->request, response);
        fgw_track_submits(worker, FGW_SUBMIT_WORK);
    }
    return true;
}

static bool put_off(struct fgw_worker *worker, const struct fgw_parsed *parsed, uint16_t response)
{
    struct fgw_backlog *backlog = &worker->loop->backlog;
    uint32_t head_bytes = (uint32_t)sizeof(parsed->header) + parsed->service->request_bytes;
    struct fgw_backlog_entry entry = {.payload_bytes = head_bytes + parsed->request.payload_bytes,
                                      .response = response};
    entry.entry_bytes = ((uint32_t)sizeof(entry) + entry.payload_bytes + 7u) & ~7u;
    if (backlog->tail + entry.entry_bytes > FGW_BACKLOG_BYTES && backlog->head != 0) {
        memmove(backlog->bytes, backlog->bytes + backlog->head, backlog->tail - backlog->head);
        backlog->tail -= backlog->head;
        backlog->head = 0;
    }
    if (backlog->tail + entry.entry_bytes > FGW_BACKLOG_BYTES) {
        return false;
    }
    uint8_t *to = backlog->bytes + backlog->tail;
    memcpy(to, &entry, sizeof(entry));
    memcpy(to + sizeof(entry), &parsed->header, sizeof(parsed->header));
    memcpy(to + sizeof(entry) + sizeof(parsed->header), parsed->fixed, parsed->service->request_bytes);
    memcpy(to + sizeof(entry) + head_bytes, parsed->request.payload, parsed->request.payload_bytes);
    backlog->tail += entry.entry_bytes;
    fgw_turn_set_backlog(worker, true);
    return true;
}

enum fgw_served fgw_serve_record(struct fgw_worker *worker, const struct fgv_consumed *record)
{
    struct fgw_parsed parsed;
    if (!parse(&parsed, record->payload, record->payload_bytes)) {
        fgw_refuse(worker, record->response, CUDA_ERROR_INVALID_VALUE);
        return FGW_SERVED;
    }
    if (fgw_parts_answers(worker, &parsed.request)) {
        count_call(worker, record->response);
        fgw_answer(worker, parsed.service, record->response, CUDA_ERROR_NOT_READY, NULL);
        return FGW_SERVED;
    }
    if (!fgw_loop_has_backlog(worker) || parsed.service->order == FGV_ORDER_FREE) {
        if (serve(worker, &parsed, record->response)) {
            return FGW_SERVED;
        }
    }
    return put_off(worker, &parsed, record->response) ? FGW_SERVED : FGW_SERVE_LATER;
}

bool fgw_serve_backlog(struct fgw_worker *worker)
{
    struct fgw_backlog *backlog = &worker->loop->backlog;
    bool is_progress = false;
    const uint64_t seq = worker->track->seq;
    fgw_turn_set_gated(worker, false);
    while (fgw_loop_has_backlog(worker)) {
        struct fgw_backlog_entry entry;
        struct fgw_parsed parsed;
        const uint8_t *from = backlog->bytes + backlog->head;
        memcpy(&entry, from, sizeof(entry));
        if (!parse(&parsed, from + sizeof(entry), entry.payload_bytes)) {
            fgw_refuse(worker, entry.response, CUDA_ERROR_INVALID_VALUE);
        } else if (!serve(worker, &parsed, entry.response)) {
            break;
        }
        is_progress = true;
        backlog->head += entry.entry_bytes;
    }
    if (!fgw_loop_has_backlog(worker)) {
        backlog->head = 0;
        backlog->tail = 0;
        fgw_turn_set_backlog(worker, false);
    }
    return is_progress || worker->track->seq != seq; /* parts of a launch are progress, too */
}
