#include "face/loan.h"

#include "call/current.h"
#include "code/code.h"
#include "code/function.h"
#include "context/event.h"
#include "context/stream.h"
#include "memory/array.h"
#include "memory/ranges.h"

static struct fgv_context *context_of(enum fgv_handle_kind kind, uint64_t handle)
{
    const void *object = fgv_handle_object(kind, handle);
    if (!object) {
        return NULL;
    }
    switch (kind) {
    case FGV_HANDLE_STREAM:
        return ((const struct fgv_stream *)object)->context;
    case FGV_HANDLE_EVENT:
        return fgv_event_context(object);
    case FGV_HANDLE_MODULE:
        return ((const struct fgv_code *)object)->context;
    case FGV_HANDLE_FUNCTION:
        return ((const struct fgv_function *)object)->context;
    case FGV_HANDLE_ARRAY:
        return ((const struct fgv_array *)object)->context;
    case FGV_HANDLE_MIPMAPPED_ARRAY:
        return fgv_mipmap_context(handle);
    default:
        return NULL;
    }
}

static bool take(struct fgv_context *context)
{
    const uint64_t handle = !context ? 0 : fgv_context_handle(context);
    if (handle == 0) {
        return false;
    }
    fgv_thread.context = context;
    fgv_thread.current = handle;
    return true;
}

bool fgv_loan_take(enum fgv_handle_kind kind, uint64_t handle)
{
    return take(context_of(kind, handle));
}

bool fgv_loan_take_at(uint64_t address)
{
    struct fgv_range range;
    return fgv_memory_find(address, &range) && take(range.context);
}

CUresult fgv_loan_return(CUresult result)
{
    fgv_thread.context = NULL;
    fgv_thread.current = 0;
    return result;
}
