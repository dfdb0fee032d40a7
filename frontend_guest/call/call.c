/* Records on their way to the worker and answers on their way back: see call.h. */
#include "call/call.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "call/current.h"
#include "region/client.h"

#define SLOT_NAP_NS 50000

const struct fgv_call_ops *fgv_call_ops;
_Atomic uint32_t fgv_nr_captures;
_Atomic uint64_t fgv_call_watch;

/*
 * A thread keeps the response slot that it waited on first, so that a launch has nothing to take. Half of the slots may
 * be kept; threads beyond that take one for each call, and before they reserve a record: a thread that waits for a slot
 * must not hold up the ring.
 */
static _Atomic uint32_t nr_kept;

static bool slot_take(uint32_t *slot)
{
    const struct timespec nap = {.tv_nsec = SLOT_NAP_NS};
    for (;;) {
        int32_t taken = fgv_free_set_take(&fgv_guest.free_responses, 0);
        if (taken >= 0) {
            *slot = (uint32_t)taken;
            return true;
        }
        if (!fgv_client_keep_waiting(NULL, 0)) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
}

static bool slot_get(struct fgv_call *call)
{
    if (__builtin_expect(fgv_thread.response != 0, 1)) {
        call->response = fgv_thread.response - 1;
        return true;
    }
    if (!slot_take(&call->response)) {
        return false;
    }
    if (atomic_fetch_add_explicit(&nr_kept, 1, memory_order_relaxed) < fgv_guest.nr_responses / 2) {
        fgv_thread.response = call->response + 1;
        fgv_thread_register();
    } else {
        atomic_fetch_sub_explicit(&nr_kept, 1, memory_order_relaxed);
    }
    return true;
}

static void slot_put(struct fgv_call *call)
{
    if (__builtin_expect(fgv_thread.response == 0, 0)) {
        fgv_free_set_give(&fgv_guest.free_responses, call->response);
    }
}

void fgv_call_thread_ends(void)
{
    if (fgv_thread.response == 0) {
        return;
    }
    fgv_free_set_give(&fgv_guest.free_responses, fgv_thread.response - 1);
    fgv_thread.response = 0;
    atomic_fetch_sub_explicit(&nr_kept, 1, memory_order_relaxed);
}

void fgv_call_print_output(void)
{
    if (__builtin_expect(atomic_load_explicit(&fgv_guest.client->output_pending, memory_order_relaxed) != 0, 0)) {
        fgv_call_ops->output_print();
    }
}

CUresult fgv_call_sticky_error(void)
{
    return (CUresult)atomic_load_explicit(&fgv_guest.client->sticky_error, memory_order_relaxed);
}

/* The error of a fault, behind what kernels said before it. */
static CUresult fault(void)
{
    const CUresult error = fgv_call_sticky_error();
    if (__builtin_expect(error != CUDA_SUCCESS, 0)) {
        fgv_call_print_output();
    }
    return error;
}

/* Errors that the worker left for later calls of the program's. */
static CUresult earlier_error(struct fgv_client *client)
{
    const CUresult error = fault();
    if (error != CUDA_SUCCESS || atomic_load_explicit(&client->deferred_error, memory_order_relaxed) == 0 ||
        fgv_thread.is_ours) {
        return error;
    }
    /* One of the threads gets it. */
    return (CUresult)atomic_exchange_explicit(&client->deferred_error, 0, memory_order_relaxed);
}

static CUresult worker_there(void)
{
    /* acquire: what cuInit filled is seen */
    if (atomic_load_explicit(fgv_connection, memory_order_acquire) == FGV_CONNECTION_SERVED &&
        atomic_load_explicit(&fgv_guest.client->state, memory_order_relaxed) == FGV_CLIENT_READY) {
        return CUDA_SUCCESS;
    }
    return fgv_client_await();
}

/* What the device waits for cannot wait for the device: NVIDIA's driver says so, too. */
static bool is_not_permitted(void)
{
    return fgv_thread.is_called && !fgv_thread.is_ours;
}

CUresult fgv_call_allowed_anywhere(void)
{
    CUresult result = fgv_client_is_open();
    return result != CUDA_SUCCESS ? result : fgv_context_usable(fgv_thread.context, fgv_thread.current);
}

CUresult fgv_call_permitted(void)
{
    return is_not_permitted() ? CUDA_ERROR_NOT_PERMITTED : fgv_call_allowed_anywhere();
}

CUresult fgv_call_allowed(void)
{
    CUresult result = fgv_call_permitted();
    return result != CUDA_SUCCESS ? result : fault();
}

CUresult fgv_call_healthy(void)
{
    CUresult result = fgv_call_allowed();
    return result != CUDA_SUCCESS ? result : earlier_error(fgv_guest.client);
}

static inline void *reserve(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes,
                            uint64_t context)
{
    if (!slot_get(call)) {
        call->error = fgv_client_lost();
        return NULL;
    }
    uint32_t bytes = (uint32_t)sizeof(struct fgv_wire_header) + request_bytes + payload_bytes;
    call->record = fgv_producer_reserve(&fgv_guest.producer, bytes, &call->position);
    if (__builtin_expect(!call->record, 0)) {
        slot_put(call);
        call->error =
            bytes > FGV_RECORD_MAX_BYTES - sizeof(struct fgv_record) ? CUDA_ERROR_INVALID_VALUE : fgv_client_lost();
        return NULL;
    }
    call->number = number;
    uint8_t *start = fgv_record_payload(call->record);
    *(struct fgv_wire_header *)(void *)start = (struct fgv_wire_header){.call = number, .context = (uint32_t)context};
    call->payload = start + sizeof(struct fgv_wire_header) + request_bytes;
    return start + sizeof(struct fgv_wire_header);
}

/* True when none of the reasons holds for which a call is not sent: five loads of words that hardly ever change. */
static inline bool nothing_is_wrong(void)
{
    if (atomic_load_explicit(fgv_connection, memory_order_acquire) != FGV_CONNECTION_SERVED) {
        return false;
    }
    struct fgv_client *client = fgv_guest.client;
    return atomic_load_explicit(&client->state, memory_order_relaxed) == FGV_CLIENT_READY &&
           (atomic_load_explicit(&client->sticky_error, memory_order_relaxed) |
            atomic_load_explicit(&client->deferred_error, memory_order_relaxed) | fgv_thread.is_called) == 0 &&
           fgv_context_is_ready(fgv_thread.context, fgv_thread.current);
}

/* What NVIDIA's driver answers in a host function, too. */
static bool is_of_events(uint16_t number)
{
    return number == FGV_CALL_cuEventQuery || number == FGV_CALL_cuEventSynchronize ||
           number == FGV_CALL_cuEventElapsedTime || number == FGV_CALL_cuEventElapsedTime_v2;
}

static CUresult what_is_wrong(uint16_t number)
{
    CUresult result = is_of_events(number) ? fgv_call_allowed_anywhere() : fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = worker_there();
    }
    if (result == CUDA_SUCCESS) {
        result = earlier_error(fgv_guest.client);
    }
    return result == CUDA_SUCCESS ? fgv_call_ops->context_make(fgv_thread.context, fgv_thread.current) : result;
}

/* Gives up a record that was reserved: the worker passes it over. There is room for the request, as records are of
 * whole lines of the cache. */
static void give_up(struct fgv_call *call)
{
    const uint32_t bytes = (uint32_t)(sizeof(struct fgv_wire_header) + sizeof(struct fgv_request_given_up));
    uint8_t *start = fgv_record_payload(call->record);
    *(struct fgv_wire_header *)(void *)start = (struct fgv_wire_header){.call = FGV_CALL_given_up};
    *(struct fgv_request_given_up *)(void *)(start + sizeof(struct fgv_wire_header)) =
        (struct fgv_request_given_up){.reserved = 0};
    if (call->record->payload_bytes < bytes) {
        call->record->payload_bytes = bytes;
    }
    fgv_producer_commit(&fgv_guest.producer, call->record, call->position);
    slot_put(call);
}

void *fgv_call_begin(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes)
{
    for (;;) {
        const uint64_t watch = atomic_load_explicit(&fgv_call_watch, memory_order_acquire);
        if (fgv_call_is_watched(watch)) {
            fgv_call_ops->before(number);
        }
        if (__builtin_expect(!nothing_is_wrong(), 0)) {
            call->error = what_is_wrong(number);
            if (call->error != CUDA_SUCCESS) {
                return NULL;
            }
        }
        void *request = reserve(call, number, request_bytes, payload_bytes, fgv_thread.current);
        /* seq_cst: behind the reservation, which is an exchange */
        const uint64_t now = atomic_load_explicit(&fgv_call_watch, memory_order_seq_cst);
        if (__builtin_expect(!request || now >> 32 == watch >> 32 || fgv_thread.is_ours, 1)) {
            return request;
        }
        give_up(call);
    }
}

void fgv_call_work_follows(void)
{
    if (fgv_call_is_watched(atomic_load_explicit(&fgv_call_watch, memory_order_acquire))) {
        fgv_call_ops->before(FGV_CALL_cuGraphLaunch);
    }
}

void *fgv_call_begin_anywhere(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes)
{
    if (fgv_context_usable(fgv_thread.context, fgv_thread.current) == CUDA_SUCCESS) {
        return fgv_call_begin(call, number, request_bytes, payload_bytes);
    }
    call->error = is_not_permitted() ? CUDA_ERROR_NOT_PERMITTED : worker_there();
    if (call->error == CUDA_SUCCESS) {
        call->error = earlier_error(fgv_guest.client);
    }
    return call->error != CUDA_SUCCESS ? NULL : reserve(call, number, request_bytes, payload_bytes, 0);
}

void *fgv_call_begin_for(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes,
                         uint64_t context)
{
    call->error = worker_there();
    return call->error != CUDA_SUCCESS ? NULL : reserve(call, number, request_bytes, payload_bytes, context);
}

static void publish(struct fgv_call *call)
{
    fgv_count(FGV_COUNT_CALLS, 1);
    fgv_count(FGV_COUNT_REQUEST_BYTES, call->record->payload_bytes);
    fgv_producer_commit(&fgv_guest.producer, call->record, call->position);
}

CUresult fgv_call_post(struct fgv_call *call)
{
    if (__builtin_expect(atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0, 0)) {
        return fgv_call_wait(call, NULL, 0);
    }
    publish(call);
    slot_put(call);
    return CUDA_SUCCESS;
}

/* A program that asked for blocking waits (cudaDeviceScheduleBlockingSync) wants its CPU for other things. */
static struct fgv_spin spin_of(const struct fgv_call *call)
{
    const struct fgv_context *context = fgv_thread.context;
    bool blocks = context && (context->flags & (uint32_t)CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
    struct fgv_habit *waits = fgv_guest.waits[call->response];
    return (struct fgv_spin){blocks ? 0 : fgv_guest.spin_ns, &waits[call->number % FGV_NR_WAITS], &fgv_guest.oversleep};
}

void fgv_call_tell_who_waits(void)
{
    _Atomic uint32_t *asker = &fgv_guest.client->asker;
    uint32_t who;
    if (fgv_guest.region.wake == FGV_WAKE_FUTEX) {
        who = fgv_thread_id();
    } else {
        who = (uint32_t)sched_getcpu() + 1;
    }
    if (atomic_load_explicit(asker, memory_order_relaxed) != who) {
        atomic_store_explicit(asker, who, memory_order_relaxed);
    }
}

CUresult fgv_call_wait(struct fgv_call *call, void *reply, uint32_t reply_bytes)
{
    return fgv_call_wait_while(call, reply, reply_bytes, fgv_client_keep_waiting, NULL);
}

CUresult fgv_call_wait_while(struct fgv_call *call, void *reply, uint32_t reply_bytes, fgv_keep_waiting_fn keep_waiting,
                             void *context)
{
    struct fgv_response *slot = &fgv_guest.responses[call->response];
    /* relaxed: the commit publishes it */
    atomic_store_explicit(&slot->state, FGV_SLOT_WAITING, memory_order_relaxed);
    call->record->response = (uint16_t)call->response;
    fgv_call_tell_who_waits();
    publish(call);
    fgv_count(FGV_COUNT_ROUND_TRIPS, 1);
    const struct fgv_spin spin = spin_of(call);
    if (!fgv_slot_wait(&slot->state, &fgv_guest.region, &spin, keep_waiting, context)) {
        return fgv_client_lost(); /* the slot is never used again: the host might still write to it */
    }
    CUresult result = (CUresult)slot->result;
    fgv_count(FGV_COUNT_REPLY_BYTES, slot->payload_bytes);
    if (result == CUDA_SUCCESS && reply_bytes != 0) {
        if (slot->payload_bytes >= reply_bytes && reply_bytes <= FGV_RESPONSE_PAYLOAD_BYTES) {
            memcpy(reply, slot->payload, reply_bytes);
        } else {
            result = CUDA_ERROR_UNKNOWN;
        }
    }
    slot_put(call);
    if (call->number != FGV_CALL_output_fetch) {
        fgv_call_print_output();
    }
    return result;
}
