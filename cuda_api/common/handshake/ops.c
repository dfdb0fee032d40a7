/* Keeps what the embedder lent, and asks it for the current context. */
#include <stdatomic.h>

#include "internal.h"

static _Atomic(const struct fgv_handshake_ops *) handshake_ops;

void fgv_handshake_set_ops(const struct fgv_handshake_ops *ops)
{
    atomic_store_explicit(&handshake_ops, ops, memory_order_release);
}

const struct fgv_handshake_ops *fgv_handshake_ops_get(void)
{
    return atomic_load_explicit(&handshake_ops, memory_order_acquire);
}

CUresult fgv_handshake_current(CUcontext *context)
{
    *context = NULL;
    const struct fgv_handshake_ops *ops = fgv_handshake_ops_get();
    if (!ops) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult result = ops->current_context(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return !*context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
