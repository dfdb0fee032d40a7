/* What a context answers about itself, from what the guest knows: device, flags, limits, configurations, id. */
#include "base/thread.h"
#include "call/call.h"
#include "call/device.h"
#include "context/context.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "region/client.h"

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Answers for one that was destroyed, too. */
    if (!fgv_thread.context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *device = (CUdevice)fgv_thread.context->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    if (!ctx) {
        return cuCtxGetDevice(device);
    }
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_context *context = fgv_context_find(ctx);
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *device = (CUdevice)context->ordinal;
    return CUDA_SUCCESS;
}

/* For questions about the current context, which have somewhere to answer. */
static CUresult question(const void *answer, struct fgv_context **context)
{
    CUresult result = fgv_context_current(context);
    return result == CUDA_SUCCESS && !answer ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    CUresult result = fgv_call_permitted(); /* a fault is no reason not to say */
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = fgv_thread.context->flags | (fgv_thread.context->is_primary ? CU_CTX_MAP_HOST : 0);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    struct fgv_context *context;
    CUresult result = fgv_context_current(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_context_flags_are_sound(flags)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* How a thread waits is decided here, so the host need not know. What else may stand there is for cuCtxCreate. */
    context->flags = flags & ((unsigned)CU_CTX_SCHED_MASK | CU_CTX_LMEM_RESIZE_TO_MAX);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_context *context = fgv_context_find(ctx);
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!ctxId) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_context *context = fgv_context_find(ctx);
    if (!context || fgv_context_usable(context, fgv_context_handle(context)) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = fgv_device_facts(context->ordinal)->context_api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct fgv_context *context;
    CUresult result = fgv_context_current(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgv_device_facts *facts = fgv_device_facts(context->ordinal);
    if (leastPriority) {
        *leastPriority = facts->least_priority;
    }
    if (greatestPriority) {
        *greatestPriority = facts->greatest_priority;
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct fgv_context *context;
    CUresult result = fgv_context_current(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pvalue || (unsigned)limit >= CU_LIMIT_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((unsigned)limit >= FGV_FACTS_NR_LIMITS) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    uint32_t bit = 1u << (unsigned)limit;
    if ((atomic_load_explicit(&context->limits_known, memory_order_acquire) & bit) == 0) {
        struct fgv_call call;
        struct fgv_request_cuCtxGetLimit *request = fgv_call_begin(&call, FGV_CALL_cuCtxGetLimit, sizeof(*request), 0);
        if (!request) {
            return call.error;
        }
        *request = (struct fgv_request_cuCtxGetLimit){.limit = (uint32_t)limit};
        struct fgv_reply_cuCtxGetLimit reply;
        result = fgv_call_wait(&call, &reply, sizeof(reply));
        if (result != CUDA_SUCCESS) {
            return result;
        }
        context->limits[limit] = (size_t)reply.pvalue;
        atomic_fetch_or_explicit(&context->limits_known, bit, memory_order_release);
    }
    if (context->limits[limit] == SIZE_MAX) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

/* The driver may round what was set, so the next question goes to the host. */
void fgv_after_cuCtxSetLimit(CUresult result, CUlimit limit, size_t value)
{
    (void)result;
    (void)value;
    if (fgv_thread.context && (unsigned)limit < 32) {
        atomic_fetch_and_explicit(&fgv_thread.context->limits_known, ~(1u << (unsigned)limit), memory_order_relaxed);
    }
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct fgv_context *context;
    CUresult result = question(pconfig, &context);
    if (result == CUDA_SUCCESS) {
        *pconfig = context->cache_config;
    }
    return result;
}

void fgv_after_cuCtxSetCacheConfig(CUresult result, CUfunc_cache config)
{
    (void)result;
    if (fgv_thread.context) {
        fgv_thread.context->cache_config = config;
    }
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct fgv_context *context;
    CUresult result = question(pConfig, &context);
    if (result == CUDA_SUCCESS) {
        *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    }
    return result;
}

/* Banks have had one width since compute capability 5.0; the call is kept for programs that still make it. */
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct fgv_context *context;
    CUresult result = fgv_context_current(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
