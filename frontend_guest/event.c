/* Events: every call of theirs is generated; what is kept here is in which context each was made, to forget it with the
 * context. */
#include "event.h"

#include "call.h"
#include "context.h"
#include "frontend_guest/generated/hooks.h"
#include "thread.h"

void fgv_after_cuEventCreate(CUresult result, CUevent *phEvent, unsigned int Flags)
{
    (void)result;
    (void)Flags;
    fgv_handle_set_object(FGV_HANDLE_EVENT, (uint64_t)(uintptr_t)*phEvent, fgv_thread.context);
}

void fgv_after_cuEventDestroy_v2(CUresult result, CUevent hEvent)
{
    (void)result;
    (void)hEvent;
}

static void forget(uint64_t handle, void *object, void *context)
{
    if (object == context)
        fgv_handle_drop(FGV_HANDLE_EVENT, handle);
}

void fgv_event_forget_context(struct fgv_context *context)
{
    fgv_handle_each(FGV_HANDLE_EVENT, forget, context);
}
