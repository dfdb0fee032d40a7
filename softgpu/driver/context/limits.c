/* What can be set in a context: limits, preferences, peers. Preferences change nothing on a CPU; they are kept and
 * given back. */
#include "cuda_api/prototypes.h"
#include "device/current.h"
#include "device/printf.h"

SGP_EXPORT CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(sgp_enter(&context), pvalue);

    if (result) {
        return result;
    }
    if ((unsigned int)limit >= CU_LIMIT_SHMEM_SIZE) {
        return sgp_leave((unsigned int)limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE);
    }
    *pvalue = context->limits[limit];
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if ((unsigned int)limit >= CU_LIMIT_SHMEM_SIZE) {
        return sgp_leave((unsigned int)limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE);
    }
    if (limit == CU_LIMIT_STACK_SIZE && value > SGP_MAX_STACK_BYTES) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (limit == CU_LIMIT_PRINTF_FIFO_SIZE && !sgp_printf_resize(context->printf_buffer, value)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    context->limits[limit] = value;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(sgp_enter(&context), pconfig);

    if (result) {
        return result;
    }
    *pconfig = context->cache_config;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    context->cache_config = config;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(sgp_enter(&context), pConfig);

    if (result) {
        return result;
    }
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    return sgp_leave((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE
                                                                                      : CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    return result ? result : sgp_leave(CUDA_SUCCESS); /* there is none: nothing persists */
}

SGP_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (Flags) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_object_is(peerContext, SGP_CONTEXT) || peerContext->device == context->device) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    return sgp_leave(CUDA_SUCCESS); /* all devices' memory is in this process at addresses of its own */
}

SGP_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    return sgp_leave(sgp_object_is(peerContext, SGP_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

/* There is nothing to profile with; a driver without a profiler attached answers the same. */
SGP_EXPORT CUresult cuProfilerStart(void)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    return result ? result : sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuProfilerStop(void)
{
    return cuProfilerStart();
}
