/* Events: every call of theirs is generated; what is kept here is in which context each was made, to forget it with the
 * context. Those that programs share are shared_event.c's. */
#include "context/event.h"

#include "base/thread.h"
#include "call/call.h"
#include "context/shared_event.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"

void fgv_after_cuEventCreate(CUresult result, CUevent *phEvent, unsigned int Flags)
{
    (void)result;
    (void)Flags;
    fgv_handle_set_object(FGV_HANDLE_EVENT, (uint64_t)(uintptr_t)*phEvent, fgv_thread.context);
}

void fgv_after_cuEventDestroy_v2(CUresult result, CUevent hEvent)
{
    (void)result;
    struct fgv_shared_event *shared =
        fgv_shared_event_of(fgv_handle_object(FGV_HANDLE_EVENT, fgv_handle_number(hEvent)));
    if (shared) {
        fgv_shared_event_destroy(shared);
    }
}

/* NULL for the result counts as a bad handle. */
static CUresult elapsed(uint16_t number, float *milliseconds, CUevent start, CUevent end)
{
    _Static_assert(sizeof(struct fgv_request_cuEventElapsedTime) == sizeof(struct fgv_request_cuEventElapsedTime_v2),
                   "same request");
    CUresult result = fgv_call_allowed_anywhere();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_EVENT, (uint64_t)(uintptr_t)start);
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_EVENT, (uint64_t)(uintptr_t)end);
    }
    if (result != CUDA_SUCCESS || !milliseconds) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    struct fgv_call call;
    struct fgv_reply_cuEventElapsedTime reply;
    struct fgv_request_cuEventElapsedTime *request = fgv_call_begin(&call, number, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request =
        (struct fgv_request_cuEventElapsedTime){.hStart = (uint64_t)(uintptr_t)start, .hEnd = (uint64_t)(uintptr_t)end};
    result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        *milliseconds = reply.pMilliseconds;
    }
    return result;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed(FGV_CALL_cuEventElapsedTime, pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return elapsed(FGV_CALL_cuEventElapsedTime_v2, pMilliseconds, hStart, hEnd);
}

struct fgv_context *fgv_event_context(const void *object)
{
    const struct fgv_shared_event *shared = fgv_shared_event_of(object);
    return shared ? shared->context : (struct fgv_context *)object;
}

static void forget(uint64_t handle, void *object, void *context)
{
    struct fgv_shared_event *shared = fgv_shared_event_of(object);
    if (shared ? fgv_shared_event_forget(shared, context) : object == context) {
        fgv_handle_drop(FGV_HANDLE_EVENT, handle);
    }
}

void fgv_event_forget_context(struct fgv_context *context)
{
    fgv_handle_each(FGV_HANDLE_EVENT, forget, context);
}
