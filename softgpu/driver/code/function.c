/* Functions: kernels as a context has them. */
#include "code/function.h"

#include "code/library.h"
#include "cuda_api/prototypes.h"
#include "device/current.h"

CUresult sgp_function_resolve(struct CUctx_st *context, CUfunction handle, struct CUfunc_st **function,
                              struct sgp_function_settings **settings)
{
    struct CUkern_st *kernel = (struct CUkern_st *)handle;
    struct CUmod_st *module;
    CUresult result;

    if (sgp_object_is(handle, SGP_FUNCTION)) {
        *function = handle;
        *settings = &handle->settings;
        return handle->object.context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    /* A kernel of a library may stand where a function does. */
    if (!sgp_object_is(handle, SGP_KERNEL)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    result = sgp_library_module(context, kernel->library, &module);
    if (!result) {
        *function = &module->functions[kernel->index];
        *settings = &kernel->settings[context->device->ordinal];
    }
    return result;
}

static CUresult enter_function(CUfunction handle, struct CUfunc_st **function, struct sgp_function_settings **settings)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(handle, &context);

    if (result == CUDA_ERROR_INVALID_CONTEXT && handle) {
        return CUDA_ERROR_INVALID_HANDLE; /* a kernel, which is of no context */
    }
    if (result) {
        return result;
    }
    result = sgp_function_resolve(context, handle, function, settings);
    return result ? sgp_leave(result) : CUDA_SUCCESS;
}

/* The same for calls of later CUDA versions, which take NULL for a bad argument rather than a bad handle. */
static CUresult enter_given_function(CUfunction handle, struct CUfunc_st **function,
                                     struct sgp_function_settings **settings)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter_by(handle, &context);

    if (!result && !handle) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!result) {
        sgp_unlock();
    }
    return result ? result : enter_function(handle, function, settings);
}

SGP_EXPORT CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(hfunc, &function, &settings);

    if (result) {
        return result;
    }
    return sgp_leave(
        sgp_function_attribute_get(function->module->image->module, function->kernel, settings, attrib, pi));
}

SGP_EXPORT CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(hfunc, &function, &settings);

    return result ? result : sgp_leave(sgp_function_attribute_set(function->kernel, settings, attrib, value));
}

SGP_EXPORT CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(hfunc, &function, &settings);

    if (result) {
        return result;
    }
    return sgp_leave((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE
                                                                       : CUDA_SUCCESS); /* a hint */
}

SGP_EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(hfunc, &function, &settings);

    if (result) {
        return result;
    }
    return sgp_leave((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE
                                                                                      : CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = sgp_with_argument(enter_given_function(hfunc, &function, &settings), hmod);

    if (result) {
        return result;
    }
    *hmod = function->module;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = sgp_with_argument(enter_given_function(hfunc, &function, &settings), name);

    if (result) {
        return result;
    }
    *name = function->kernel->name;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_given_function(func, &function, &settings);

    return result ? result : sgp_leave(sgp_parameter_info(function->kernel, paramIndex, paramOffset, paramSize));
}

SGP_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction func)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = sgp_with_argument(enter_function(func, &function, &settings), state);

    if (result) {
        return result;
    }
    *state = function->is_loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuFuncLoad(CUfunction func)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(func, &function, &settings);

    if (result) {
        return result;
    }
    function->is_loaded = true;
    return sgp_leave(CUDA_SUCCESS);
}
