/* Streams: made, named, waited for. How they run is queue.c. */
#include "stream/stream.h"

#include <stdlib.h>

#include "cuda_api/prototypes.h"
#include "device/printf.h"
#include "stream/capture.h"
#include "stream/queue.h"

/*
 * A thread has one for each context, and keeps at hand which it used last. One that ends leaves its streams to their
 * contexts, as idle streams cost nothing.
 */
struct per_thread_stream {
    uint64_t context_id;
    struct CUstream_st *stream;
};

static __thread struct per_thread_stream own_stream;
static __thread uint64_t own_number;

static void stream_destroy(void *object)
{
    struct CUstream_st *stream = object;

    sgp_object_release(stream->object.context);
    free(stream);
}

struct CUstream_st *sgp_stream_new(struct CUctx_st *context, unsigned int flags, int priority)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    if (!stream) {
        return NULL;
    }
    if (!sgp_object_add(stream, SGP_STREAM, stream_destroy)) {
        free(stream);
        return NULL;
    }
    stream->object.context = context;
    sgp_object_keep(context);
    stream->id = sgp_new_id();
    stream->flags = flags;
    stream->sync_policy = CU_SYNC_POLICY_AUTO;
    stream->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
    stream->priority = priority > SGP_LEAST_PRIORITY      ? SGP_LEAST_PRIORITY
                       : priority < SGP_GREATEST_PRIORITY ? SGP_GREATEST_PRIORITY
                                                          : priority;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static CUresult per_thread_resolve(struct CUctx_st *context, struct CUstream_st **resolved)
{
    /* By number: the handle of a destroyed context may be a new one's. */
    if (own_stream.context_id != context->id) {
        struct CUstream_st *stream = context->streams;

        if (!own_number) {
            own_number = sgp_new_id();
        }
        while (stream && stream->thread != own_number) {
            stream = stream->next;
        }
        if (!stream) {
            stream = sgp_stream_new(context, CU_STREAM_DEFAULT, 0);
            if (!stream) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            stream->thread = own_number;
        }
        own_stream = (struct per_thread_stream){.context_id = context->id, .stream = stream};
    }
    *resolved = own_stream.stream;
    return CUDA_SUCCESS;
}

CUresult sgp_stream_resolve(struct CUctx_st *context, CUstream handle, struct CUstream_st **resolved)
{
    if (!handle || handle == CU_STREAM_LEGACY) {
        *resolved = context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        return per_thread_resolve(context, resolved);
    }
    if (!sgp_object_is(handle, SGP_STREAM)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *resolved = handle; /* of another context too: copies, sets and waits may name any stream */
    return handle->object.context->error;
}

CUresult sgp_enter_stream(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(handle, &context);

    if (result) {
        return result;
    }
    result = sgp_stream_resolve(context, handle, stream);
    return result ? sgp_leave(result) : CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!phStream || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *phStream = sgp_stream_new(context, flags, priority);
    return sgp_leave(*phStream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

SGP_EXPORT CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

void sgp_stream_end(struct CUstream_st *stream)
{
    struct CUstream_st **link = &stream->object.context->streams;

    while (*link && *link != stream) {
        link = &(*link)->next;
    }
    if (*link) {
        *link = stream->next;
    }
    sgp_object_remove(stream);
    sgp_object_release(stream);
}

SGP_EXPORT CUresult cuStreamDestroy_v2(CUstream hStream)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!sgp_object_is(hStream, SGP_STREAM) || hStream == hStream->object.context->legacy ||
        (hStream == own_stream.stream && hStream->object.context->id == own_stream.context_id)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    context = hStream->object.context;
    sgp_capture_stream_gone(hStream);
    result = context->error;
    sgp_stream_end(hStream);
    return sgp_leave(result);
}

static CUresult empty_command_submit(struct CUstream_st *stream, uint64_t *sequence)
{
    struct sgp_command *command = calloc(1, sizeof(*command));

    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    command->finish = sgp_command_free;
    return sgp_queue_submit(stream, command, sequence);
}

SGP_EXPORT CUresult cuStreamSynchronize(CUstream hStream)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    uint64_t sequence;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    result = sgp_capture_check(stream);
    if (result) {
        return sgp_leave(result);
    }
    sequence = stream->nr_submitted;
    context = stream->object.context; /* the stream may go while it is waited for */
    /* The legacy stream stands for all blocking ones: an empty command in it waits for them. */
    if (stream == context->legacy) {
        result = empty_command_submit(stream, &sequence);
    }
    if (!result) {
        sgp_object_keep(context);
        sgp_queue_wait(stream, sequence);
        result = context->error;
        sgp_printf_flush(context);
        sgp_object_release(context);
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuStreamQuery(CUstream hStream)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    bool is_idle;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    result = sgp_capture_check(stream);
    if (result) {
        return sgp_leave(result);
    }
    context = stream->object.context;
    is_idle = sgp_queue_is_idle(stream);
    for (struct CUstream_st *other = context->streams; other && stream == context->legacy; other = other->next) {
        is_idle = is_idle && (!other->is_blocking || sgp_queue_is_idle(other));
    }
    return sgp_leave(is_idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult sgp_stream_wait(struct CUstream_st *stream, struct CUstream_st *other, uint64_t sequence)
{
    struct sgp_command *command;
    CUresult result;

    if (other->nr_completed >= sequence) {
        return CUDA_SUCCESS;
    }
    command = calloc(1, sizeof(*command));
    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    command->finish = sgp_command_free;
    result = sgp_queue_depend(command, other, sequence);
    if (result) {
        free(command);
        return result;
    }
    return sgp_queue_submit(stream, command, NULL);
}

struct host_command {
    struct sgp_command command;
    CUhostFn function;
    CUstreamCallback callback;
    CUstream handle;
    struct CUstream_st *stream;
    void *data;
};

static CUresult host_run(struct sgp_command *command)
{
    struct host_command *host = (struct host_command *)command;

    sgp_lock();
    sgp_printf_flush(host->stream->object.context);
    sgp_unlock();
    sgp_is_called = true;
    if (host->function) {
        host->function(host->data);
    } else {
        host->callback(host->handle, host->stream->object.context->error, host->data);
    }
    sgp_is_called = false;
    return CUDA_SUCCESS;
}

CUresult sgp_host_submit(struct CUstream_st *stream, CUstream handle, CUhostFn function, CUstreamCallback callback,
                         void *data)
{
    struct host_command *host = calloc(1, sizeof(*host));

    if (!host) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *host = (struct host_command){
        .command = {.run = host_run,
                    .finish = sgp_command_free,
                    .uses_no_memory = true,
                    .runs_after_error = callback != NULL},
        .function = function,
        .callback = callback,
        .handle = handle,
        .stream = stream,
        .data = data,
    };
    return sgp_queue_submit(stream, &host->command, NULL);
}

static CUresult host_call(CUstream handle, CUhostFn function, CUstreamCallback callback, void *data)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(handle, &stream);

    if (result) {
        return result;
    }
    if (stream->capture && function) {
        return sgp_leave(stream->capture->sink->host(stream, function, data));
    }
    return sgp_leave(sgp_host_submit(stream, handle, function, callback, data));
}

SGP_EXPORT CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    return fn ? host_call(hStream, fn, NULL, userData) : CUDA_ERROR_INVALID_VALUE;
}

SGP_EXPORT CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    return callback && !flags ? host_call(hStream, NULL, callback, userData) : CUDA_ERROR_INVALID_VALUE;
}
