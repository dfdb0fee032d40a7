/*
 * Limits of contexts under the vGPU's quota. A driver may take what a limit promises to all threads of the device the
 * moment that it is set: 64 KiB of stack are 16.6 GiB on an H100.
 *
 * What it takes for kernels that launch kernels is not known, so under a quota their limits may not grow: the answer is
 * that of devices that have no such limit, as new ones have none.
 */
#include "calls/limits.h"

#include "calls/memory.h"
#include "client/state.h"
#include "client/taken.h"
#include "page/account.h"

static struct fgv_driver real; /* the wrapped calls of the one device library of this process */

static bool may_grow(struct fgw_worker *worker, CUlimit limit, size_t value)
{
    uint64_t quota_bytes;
    size_t now = 0;
    fgw_quota_used(&worker->grantee, &quota_bytes);
    return quota_bytes == 0 || (real.cuCtxGetLimit && real.cuCtxGetLimit(&now, limit) == CUDA_SUCCESS && value <= now);
}

static CUresult take_limit(struct fgw_worker *worker, struct fgw_context *context, CUlimit limit, uint64_t value)
{
    CUresult result = fgw_taken_limit(worker, context, limit, value);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        fgw_memory_trim(worker);
        result = fgw_taken_limit(worker, context, limit, value);
    }
    return result;
}

static CUresult set_limit(CUlimit limit, size_t value)
{
    struct fgw_worker *worker = fgw_the_worker;
    struct fgw_context *context = worker->current;
    if (!context) {
        return real.cuCtxSetLimit(limit, value);
    }
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) {
        return may_grow(worker, limit, value) ? real.cuCtxSetLimit(limit, value) : CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    if ((unsigned int)limit >= FGW_NR_TAKEN_LIMITS) {
        return real.cuCtxSetLimit(limit, value);
    }
    const uint64_t before = context->limits.now[limit];
    CUresult result = take_limit(worker, context, limit, value);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = real.cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS) {
        fgw_taken_limit(worker, context, limit, before);
    }
    return result;
}

void fgw_limits_wrap(struct fgv_driver *driver)
{
    real = *driver;
    driver->cuCtxSetLimit = real.cuCtxSetLimit ? set_limit : NULL;
}
