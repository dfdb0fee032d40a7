/* Modules. What they have in common with libraries is code.c's. */
#include "code/module.h"

#include "call/call.h"
#include "code/code.h"
#include "code/image.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "region/client.h"

static void forget_module(uint64_t handle, void *object, void *context)
{
    (void)handle;
    struct fgv_code *code = object;
    if (code && code->context == context) {
        fgv_code_free(code, true);
    }
}

static void forget_derived(uint64_t handle, void *object, void *context)
{
    (void)handle;
    if (!object) {
        return;
    }
    pthread_mutex_lock(&fgv_code_lock);
    fgv_function_free_derived(object, context);
    pthread_mutex_unlock(&fgv_code_lock);
}

void fgv_module_forget_context(struct fgv_context *context)
{
    fgv_handle_each(FGV_HANDLE_MODULE, forget_module, context);
    fgv_handle_each(FGV_HANDLE_KERNEL, forget_derived, context);
}

void fgv_after_cuModuleUnload(CUresult result, CUmodule hmod)
{
    (void)result;
    struct fgv_code *code = fgv_handle_object(FGV_HANDLE_MODULE, (uint64_t)(uintptr_t)hmod);
    if (code) {
        fgv_code_free(code, false);
    }
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                            void **optionValues)
{
    const struct fgv_jit_options jit = {numOptions, options, optionValues};
    if (!module) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t handle;
    CUresult result = fgv_image_load(FGV_HANDLE_MODULE, image, &jit, &handle);
    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)(uintptr_t)handle;
    }
    return result;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    if (!module) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t handle;
    CUresult result = fgv_image_load_file(FGV_HANDLE_MODULE, fname, &(struct fgv_jit_options){0}, &handle);
    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)(uintptr_t)handle;
    }
    return result;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    uint64_t handle;
    CUresult result = fgv_code_function(FGV_HANDLE_FUNCTION, (uint64_t)(uintptr_t)hmod, name, &handle);
    if (result == CUDA_ERROR_NOT_FOUND && name[0] == '\0') {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && !hfunc) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *hfunc = (CUfunction)(uintptr_t)handle;
    }
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_MODULE, (uint64_t)(uintptr_t)hmod);
    }
    if (result == CUDA_SUCCESS && !dptr && !bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result != CUDA_SUCCESS
               ? result
               : fgv_code_global(FGV_CALL_cuModuleGetGlobal_v2, (uint64_t)(uintptr_t)hmod, name, dptr, bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!mode) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *mode = fgv_code_is_eager() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    _Static_assert(sizeof(CUfunction) == sizeof(uint64_t), "a handle is a number of 64 bits");
    return fgv_code_enumerate(FGV_CALL_cuModuleEnumerateFunctions, FGV_HANDLE_FUNCTION, (uint64_t)(uintptr_t)mod,
                              numFunctions, (uint64_t *)(void *)functions);
}
