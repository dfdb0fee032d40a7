/* Which context is current in a thread, and the stack of those that were. */
#include "base/handles.h"
#include "base/thread.h"
#include "call/current.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

static void current_set(uint64_t handle)
{
    fgv_thread.context = fgv_handle_object(FGV_HANDLE_CONTEXT, handle);
    fgv_thread.current = handle;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle = (uint64_t)(uintptr_t)ctx;
    if (fgv_handle_check(FGV_HANDLE_CONTEXT, handle) != CUDA_SUCCESS) {
        return !ctx ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    struct fgv_thread_more *more = fgv_thread_more();
    if (!more || more->depth == FGV_MAX_CONTEXT_DEPTH) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    more->below[more->depth++] = (struct fgv_below){.handle = fgv_thread.current, .context = fgv_thread.context};
    current_set(handle);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (fgv_thread.current == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (pctx) {
        *pctx = fgv_context_public(fgv_thread.current);
    }
    struct fgv_thread_more *more = fgv_thread.more;
    const struct fgv_below below = more && more->depth > 0 ? more->below[--more->depth] : (struct fgv_below){0};
    fgv_thread.context = below.context;
    fgv_thread.current = below.handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle = (uint64_t)(uintptr_t)ctx;
    if (handle == fgv_thread.current && handle != 0 && fgv_context_handle(fgv_thread.context) == handle) {
        return CUDA_SUCCESS;
    }
    if (handle == 0) {
        if (fgv_thread.current != 0) {
            return cuCtxPopCurrent_v2(NULL);
        }
        return CUDA_SUCCESS;
    }
    if (fgv_handle_check(FGV_HANDLE_CONTEXT, handle) != CUDA_SUCCESS) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    current_set(handle);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = fgv_context_public(fgv_thread.current);
    return CUDA_SUCCESS;
}
