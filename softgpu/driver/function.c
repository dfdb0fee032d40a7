/* What kernels say of themselves, and the little that can be set. */
#include <stdlib.h>

#include "cuda_api/prototypes.h"
#include "loading.h"

#define BINARY_VERSION 80

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

CUresult sgp_function_attribute_get(const struct sgp_image *image, const struct sgp_kernel *kernel,
                                    const struct sgp_function_settings *settings, CUfunction_attribute attribute,
                                    int *value)
{
    if (!value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)(kernel->max_threads && kernel->max_threads < SGP_MAX_BLOCK_THREADS ? kernel->max_threads
                                                                                          : SGP_MAX_BLOCK_THREADS);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)kernel->static_shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = 0;
        for (uint32_t i = 0; i < image->module->nr_globals; i++) {
            *value += image->module->globals[i].is_constant ? (int)image->module->globals[i].size_bytes : 0;
        }
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)kernel->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)(kernel->nr_registers < 255 ? kernel->nr_registers : 255);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)image->module->target;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = BINARY_VERSION;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = settings->max_dynamic_shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = settings->shared_carveout;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = settings->non_portable_cluster;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = settings->cluster_policy;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sgp_function_attribute_set(const struct sgp_kernel *kernel, struct sgp_function_settings *settings,
                                    CUfunction_attribute attribute, int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (uint32_t)value > SGP_MAX_SHARED_BYTES - kernel->static_shared_bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->max_dynamic_shared_bytes = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < CU_SHAREDMEM_CARVEOUT_DEFAULT || value > CU_SHAREDMEM_CARVEOUT_MAX_SHARED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->shared_carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_ERROR_NOT_SUPPORTED; /* no clusters before capability 9.0 */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sgp_parameter_info(const struct sgp_kernel *kernel, size_t index, size_t *offset, size_t *bytes)
{
    if (!offset || index >= kernel->nr_parameters) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = kernel->parameters[index].offset_bytes;
    if (bytes) {
        *bytes = kernel->parameters[index].size_bytes;
    }
    return CUDA_SUCCESS;
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
    return sgp_leave(sgp_function_attribute_get(function->module->image, function->kernel, settings, attrib, pi));
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
    CUresult result = enter_given_function(hfunc, &function, &settings);

    if (result) {
        return result;
    }
    if (!hmod) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *hmod = function->module;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_given_function(hfunc, &function, &settings);

    if (result) {
        return result;
    }
    if (!name) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
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
    CUresult result = enter_function(func, &function, &settings);

    if (result) {
        return result;
    }
    if (!state) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuFuncLoad(CUfunction func)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(func, &function, &settings);

    return result ? result : sgp_leave(CUDA_SUCCESS);
}
