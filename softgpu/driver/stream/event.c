/* Events: a place in a stream, and the time at which the stream got there. */
#include <stdlib.h>

#include "cuda_api/prototypes.h"
#include "device/printf.h"
#include "stream/capture.h"
#include "stream/queue.h"
#include "stream/shared_event.h"
#include "stream/stream.h"

#define ALL_EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

struct record_command {
    struct sgp_command command;
    struct CUevent_st *event;
    const struct CUstream_st *stream; /* compared, never followed */
    uint32_t number;                  /* of a shared event */
};

static void event_destroy(void *object)
{
    struct CUevent_st *event = object;

    sgp_capture_event_forget(event);
    if (event->stream) {
        sgp_object_release(event->stream);
    }
    if (event->shared) {
        sgp_shared_event_end(event->shared);
    }
    sgp_object_release(event->object.context);
    free(event);
}

static CUresult enter_event(CUevent handle)
{
    CUresult result = sgp_enter_driver_anywhere();

    if (!result && !sgp_object_is(handle, SGP_EVENT)) {
        result = sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (result) {
        return result;
    }
    return handle->object.context->error ? sgp_leave(handle->object.context->error) : CUDA_SUCCESS;
}

struct CUevent_st *sgp_event_new(struct CUctx_st *context, unsigned int flags, struct sgp_shared_event *shared)
{
    struct CUevent_st *event = calloc(1, sizeof(*event));

    if (!event || !sgp_object_add(event, SGP_EVENT, event_destroy)) {
        free(event);
        return NULL;
    }
    event->object.context = context;
    sgp_object_keep(context);
    event->flags = flags;
    event->shared = shared;
    event->next = context->events;
    context->events = event;
    return event;
}

SGP_EXPORT CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct CUctx_st *context;
    struct sgp_shared_event *shared = NULL;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!phEvent || (Flags & ~(unsigned int)ALL_EVENT_FLAGS) ||
        (Flags & CU_EVENT_INTERPROCESS && !(Flags & CU_EVENT_DISABLE_TIMING))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (Flags & CU_EVENT_INTERPROCESS) {
        shared = sgp_shared_event_new(context->device);
        if (!shared) {
            return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    *phEvent = sgp_event_new(context, Flags, shared);
    if (!*phEvent && shared) {
        sgp_shared_event_end(shared);
    }
    return sgp_leave(*phEvent ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* An event of a context that failed goes too, and the error is told. */
SGP_EXPORT CUresult cuEventDestroy_v2(CUevent hEvent)
{
    CUresult result = sgp_enter_object(hEvent, SGP_EVENT, CUDA_ERROR_INVALID_HANDLE);

    if (result) {
        return result;
    }
    for (struct CUevent_st **link = &hEvent->object.context->events; *link; link = &(*link)->next) {
        if (*link == hEvent) {
            *link = hEvent->next;
            break;
        }
    }
    result = hEvent->object.context->error;
    sgp_object_remove(hEvent);
    sgp_object_release(hEvent);
    return sgp_leave(result);
}

static void record_finish(struct sgp_command *command)
{
    struct record_command *record = (struct record_command *)command;

    if (record->event->stream == record->stream && record->event->sequence == command->sequence) {
        record->event->time_ns = sgp_now_ns();
    }
    if (record->event->shared) {
        sgp_shared_event_complete(record->event->shared, record->number);
    }
    sgp_object_release(record->event);
    free(record);
}

CUresult sgp_event_record(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct record_command *command;
    CUresult result = sgp_capture_check(stream);

    if (result) {
        return result;
    }
    command = calloc(1, sizeof(*command));
    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_capture_event_forget(event);
    *command = (struct record_command){.command = {.finish = record_finish}, .event = event, .stream = stream};
    if (!(event->flags & CU_EVENT_DISABLE_TIMING)) {
        /* So that the time is the device's: when its thread is there, not when it was called. */
        command->command.run = sgp_command_in_order;
    }
    if (event->shared) {
        command->number = sgp_shared_event_record(event->shared);
    }
    sgp_object_keep(event);
    sgp_object_keep(stream);
    if (event->stream) {
        sgp_object_release(event->stream);
    }
    event->stream = stream;
    event->sequence = stream->nr_submitted + 1;
    return sgp_queue_submit(stream, &command->command, NULL);
}

SGP_EXPORT CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = sgp_enter_by(hStream, &context);

    if (result) {
        return result;
    }
    if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_object_is(hEvent, SGP_EVENT)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    result = sgp_stream_resolve(context, hStream, &stream);
    if (!result && hEvent->object.context != stream->object.context) {
        result = CUDA_ERROR_INVALID_HANDLE; /* the current context does not matter */
    }
    if (!result) {
        result = stream->capture                    ? sgp_capture_event_record(stream, hEvent, flags)
                 : flags & CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_ILLEGAL_STATE /* external to a capture */
                                                    : sgp_event_record(hEvent, stream);
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult sgp_event_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (event->shared) {
        return sgp_shared_event_wait(stream, event);
    }
    return event->stream ? sgp_stream_wait(stream, event->stream, event->sequence) : CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    if (Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_object_is(hEvent, SGP_EVENT)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!stream->capture && (Flags & CU_EVENT_WAIT_EXTERNAL)) {
        return sgp_leave(CUDA_ERROR_ILLEGAL_STATE); /* external to a capture */
    }
    if (stream->capture || hEvent->capture) {
        return sgp_leave(sgp_capture_event_wait(stream, hEvent, Flags));
    }
    return sgp_leave(sgp_event_wait(stream, hEvent));
}

static bool is_complete(const struct CUevent_st *event)
{
    if (event->shared) {
        return sgp_shared_event_is_complete(event->shared);
    }
    return !event->stream || event->stream->nr_completed >= event->sequence;
}

SGP_EXPORT CUresult cuEventQuery(CUevent hEvent)
{
    CUresult result = enter_event(hEvent);

    if (result) {
        return result;
    }
    result = sgp_capture_event_check(hEvent);
    if (!result) {
        result = sgp_capture_forbid_unsafe();
    }
    if (!result) {
        result = is_complete(hEvent) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuEventSynchronize(CUevent hEvent)
{
    struct CUctx_st *context;
    CUresult result = enter_event(hEvent);

    if (result) {
        return result;
    }
    result = sgp_capture_event_check(hEvent);
    if (result) {
        return sgp_leave(result);
    }
    context = hEvent->object.context;
    sgp_object_keep(context);
    if (hEvent->shared) {
        sgp_shared_event_synchronize(hEvent);
    } else if (!is_complete(hEvent)) {
        sgp_queue_wait(hEvent->stream, hEvent->sequence);
    }
    result = context->error;
    sgp_printf_flush(context);
    sgp_object_release(context);
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult result = enter_event(hStart);

    if (result) {
        return result;
    }
    if (!pMilliseconds || !sgp_object_is(hEnd, SGP_EVENT) || hStart->object.context != hEnd->object.context) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    result = sgp_capture_event_check(hStart);
    if (!result) {
        result = sgp_capture_event_check(hEnd);
    }
    if (result) {
        return sgp_leave(result);
    }
    if (!hStart->stream || !hEnd->stream || ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!is_complete(hStart) || !is_complete(hEnd)) {
        return sgp_leave(CUDA_ERROR_NOT_READY);
    }
    *pMilliseconds = (float)((double)(int64_t)(hEnd->time_ns - hStart->time_ns) / 1e6);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
