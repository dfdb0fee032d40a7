/*
 * Streams. Made and destroyed without waiting for the host; what a program asks about one is known here.
 *
 * CU_STREAM_PER_THREAD is a stream of the calling thread's own in the current context, made when it is first used there
 * and destroyed when the thread ends.
 */
#include "context/stream.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/current.h"
#include "call/device.h"
#include "context/capture_rules.h"
#include "context/pool_cache.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"

#define LEGACY_ID 1u

static _Atomic uint64_t last_id = LEGACY_ID;
static struct fgv_stream legacy = {
    .id = LEGACY_ID}; /* of every context: the runtime asks for an address, not for what is in it */

static void record_free(uint64_t handle, struct fgv_stream *record)
{
    fgv_capture_forget(handle);
    if (!record) {
        return;
    }
    free(record->captured);
    free(record->captured_edges);
    free(record);
}

static void record_make(uint64_t handle, uint32_t flags, int priority)
{
    struct fgv_stream *record = malloc(sizeof(*record));
    if (!record) {
        return; /* questions about the stream are then answered with CUDA_ERROR_INVALID_HANDLE */
    }
    *record = (struct fgv_stream){.context = fgv_thread.context,
                                  .context_handle = fgv_thread.current,
                                  .id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1,
                                  .flags = flags,
                                  .priority = priority};
    fgv_handle_set_object(FGV_HANDLE_STREAM, handle, record);
}

/* The priority that the driver makes of the wanted one. */
static int priority_bound(int priority)
{
    const struct fgv_device_facts *facts = fgv_device_facts(fgv_thread.context->ordinal);
    if (priority < facts->greatest_priority) {
        return facts->greatest_priority;
    }
    return priority > facts->least_priority ? facts->least_priority : priority;
}

void fgv_after_cuStreamCreate(CUresult result, CUstream *phStream, unsigned int Flags)
{
    (void)result;
    record_make((uint64_t)(uintptr_t)*phStream, Flags, priority_bound(0));
}

void fgv_after_cuStreamCreateWithPriority(CUresult result, CUstream *phStream, unsigned int flags, int priority)
{
    (void)result;
    record_make((uint64_t)(uintptr_t)*phStream, flags, priority_bound(priority));
}

void fgv_after_cuStreamSetAttribute(CUresult result, CUstream hStream, CUstreamAttrID attr,
                                    const CUstreamAttrValue *value)
{
    struct fgv_stream *record;
    (void)result;
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY && fgv_stream_find(hStream, &record) == CUDA_SUCCESS &&
        record != &legacy) {
        record->priority = priority_bound(value->priority);
    }
}

/* Memory that the guest keeps for the stream is freed in it, as long as there is one. */
CUresult cuStreamDestroy_v2(CUstream hStream)
{
    const uint64_t handle = (uint64_t)(uintptr_t)hStream;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_STREAM, handle);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgv_pool_cache_flush_stream(handle);
    struct fgv_call call;
    struct fgv_request_cuStreamDestroy_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuStreamDestroy_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->hStream = handle;
    result = fgv_call_post(&call);
    record_free(handle, fgv_handle_object(FGV_HANDLE_STREAM, handle));
    fgv_handle_drop(FGV_HANDLE_STREAM, handle);
    return result;
}

/* The calling thread's own in the current context, or NULL. Those that went with their context are forgotten. */
static const struct fgv_own_stream *own_find(struct fgv_thread_more *more)
{
    struct fgv_own_stream **link = &more->streams;
    while (*link) {
        struct fgv_own_stream *own = *link;
        if (fgv_handle_check(FGV_HANDLE_STREAM, own->stream) != CUDA_SUCCESS) {
            *link = own->next;
            free(own);
        } else if (own->context == fgv_thread.current) {
            return own;
        } else {
            link = &own->next;
        }
    }
    return NULL;
}

static uint64_t own_stream(void)
{
    struct fgv_thread_more *more = fgv_thread_more();
    if (!more || fgv_call_allowed() != CUDA_SUCCESS) {
        return 0; /* the call that asks finds the same error and tells it */
    }
    const struct fgv_own_stream *known = own_find(more);
    if (known) {
        return known->stream;
    }
    struct fgv_own_stream *own = malloc(sizeof(*own));
    CUstream made;
    if (!own || cuStreamCreate(&made, CU_STREAM_DEFAULT) != CUDA_SUCCESS) {
        free(own);
        return FGV_STREAM_INVALID;
    }
    *own = (struct fgv_own_stream){
        .next = more->streams, .context = fgv_thread.current, .stream = (uint64_t)(uintptr_t)made};
    more->streams = own;
    return own->stream;
}

uint64_t fgv_stream_wire(CUstream stream)
{
    if (!stream || stream == CU_STREAM_LEGACY) {
        return 0;
    }
    if (stream == CU_STREAM_PER_THREAD) {
        return own_stream();
    }
    uint64_t handle = (uint64_t)(uintptr_t)stream;
    return fgv_handle_entry(FGV_HANDLE_STREAM, handle) ? handle : FGV_STREAM_INVALID;
}

static void own_end(const struct fgv_own_stream *own)
{
    if (fgv_handle_check(FGV_HANDLE_STREAM, own->stream) != CUDA_SUCCESS) {
        return; /* it went with its context */
    }
    fgv_pool_cache_flush_stream(own->stream);
    struct fgv_call call;
    struct fgv_request_cuStreamDestroy_v2 *request =
        fgv_call_begin_for(&call, FGV_CALL_cuStreamDestroy_v2, sizeof(*request), 0, own->context);
    if (request) {
        request->hStream = own->stream;
        fgv_call_post(&call);
    }
    record_free(own->stream, fgv_handle_object(FGV_HANDLE_STREAM, own->stream));
    fgv_handle_drop(FGV_HANDLE_STREAM, own->stream);
}

void fgv_stream_thread_ends(void)
{
    struct fgv_thread_more *more = fgv_thread.more;
    while (more && more->streams) {
        struct fgv_own_stream *own = more->streams;
        own_end(own);
        more->streams = own->next;
        free(own);
    }
}

static void forget(uint64_t handle, void *object, void *context)
{
    struct fgv_stream *record = object;
    if (!record || record->context != context) {
        return;
    }
    fgv_handle_drop(FGV_HANDLE_STREAM, handle);
    record_free(handle, record);
}

void fgv_stream_forget_context(struct fgv_context *context)
{
    fgv_handle_each(FGV_HANDLE_STREAM, forget, context);
}

CUresult fgv_stream_find(CUstream stream, struct fgv_stream **record)
{
    uint64_t handle = fgv_stream_wire(stream);
    *record = handle == 0 ? &legacy : fgv_handle_object(FGV_HANDLE_STREAM, handle);
    return handle == FGV_STREAM_INVALID || !*record ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* For questions: initialised, a context is current, the stream is one, and there is somewhere to answer. */
static CUresult question(CUstream stream, const void *answer, struct fgv_stream **record)
{
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_stream_find(stream, record);
    }
    return result == CUDA_SUCCESS && !answer ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct fgv_stream *record;
    CUresult result = question(hStream, priority, &record);
    if (result == CUDA_SUCCESS) {
        *priority = record->priority;
    }
    return result;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct fgv_stream *record;
    CUresult result = question(hStream, flags, &record);
    if (result == CUDA_SUCCESS) {
        *flags = record->flags;
    }
    return result;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct fgv_stream *record;
    CUresult result = question(hStream, streamId, &record);
    if (result == CUDA_SUCCESS) {
        *streamId = record->id;
    }
    return result;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct fgv_stream *record;
    CUresult result = question(hStream, pctx, &record);
    if (result == CUDA_SUCCESS) {
        *pctx = fgv_context_public(record == &legacy ? fgv_thread.current : record->context_handle);
    }
    return result;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    if (!pGreenCtx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pGreenCtx = NULL;
    return cuStreamGetCtx(hStream, pCtx);
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct fgv_stream *record;
    CUresult result = question(hStream, device, &record);
    if (result == CUDA_SUCCESS) {
        *device = (CUdevice)(record == &legacy ? fgv_thread.context : record->context)->ordinal;
    }
    return result;
}
