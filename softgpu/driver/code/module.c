/* Modules: code with a copy of its globals in a context. */
#include "code/module.h"

#include <stdlib.h>
#include <string.h>

#include "code/loading.h"
#include "cuda_api/prototypes.h"
#include "device/printf.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

static CUresult globals_new(struct CUmod_st *module)
{
    const struct sgp_module *code = module->image->module;
    void *globals = NULL;
    CUresult result;

    if (!code->globals_bytes) {
        return CUDA_SUCCESS;
    }
    result = sgp_memory_new(module->object.context, code->globals_bytes, SGP_MEMORY_MODULE, &globals);
    if (result) {
        return result;
    }
    module->globals = globals;
    sgp_memory_find((uintptr_t)globals)->code = code;
    if (code->image_bytes) {
        memcpy(module->globals, code->globals_image, code->image_bytes);
    }
    for (uint32_t i = 0; i < code->nr_relocations; i++) {
        uint64_t address = (uintptr_t)module->globals + code->relocations[i].target_bytes;

        memcpy(module->globals + code->relocations[i].at_bytes, &address, sizeof(address));
    }
    return CUDA_SUCCESS;
}

static void module_destroy(void *object)
{
    struct CUmod_st *module = object;
    struct sgp_allocation *allocation = module->globals ? sgp_memory_find((uintptr_t)module->globals) : NULL;

    if (allocation && allocation->kind == SGP_MEMORY_MODULE && allocation->start == (uintptr_t)module->globals) {
        sgp_memory_delete(allocation);
    }
    if (module->image) {
        sgp_image_release(module->image);
    }
    sgp_object_release(module->object.context);
    free(module->functions);
    free(module);
}

static bool loads_eagerly(void)
{
    const char *wanted = getenv("CUDA_MODULE_LOADING");

    return wanted && !strcmp(wanted, "EAGER");
}

static bool functions_new(struct CUmod_st *module)
{
    const struct sgp_module *code = module->image->module;

    module->functions = calloc(code->nr_kernels + 1, sizeof(*module->functions));
    if (!module->functions) {
        return false;
    }
    for (uint32_t i = 0; i < code->nr_kernels; i++) {
        struct CUfunc_st *function = &module->functions[i];

        if (!sgp_object_add(function, SGP_FUNCTION, NULL)) {
            return false;
        }
        function->object.context = module->object.context;
        function->module = module;
        function->kernel = &code->kernels[i];
        function->is_loaded = loads_eagerly();
        sgp_function_settings_reset(&function->settings, function->kernel);
    }
    return true;
}

CUresult sgp_module_new(struct CUctx_st *context, struct sgp_image *image, struct CUlib_st *library,
                        struct CUmod_st **result_module)
{
    struct CUmod_st *module = calloc(1, sizeof(*module));
    CUresult result;

    if (!module || !sgp_object_add(module, SGP_MODULE, module_destroy)) {
        free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->object.context = context;
    sgp_object_keep(context);
    module->image = image;
    image->nr_references++;
    module->library = library;
    module->next = context->modules;
    context->modules = module;
    result = globals_new(module);
    if (!result && !functions_new(module)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        sgp_module_delete(module);
    } else {
        *result_module = module;
    }
    return result;
}

void sgp_module_delete(struct CUmod_st *module)
{
    for (struct CUmod_st **link = &module->object.context->modules; *link; link = &(*link)->next) {
        if (*link == module) {
            *link = module->next;
            break;
        }
    }
    for (uint32_t i = 0; module->functions && i < module->image->module->nr_kernels; i++) {
        sgp_object_remove(&module->functions[i]);
    }
    sgp_object_remove(module);
    sgp_object_release(module);
}

SGP_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                       CUjit_option *options, void **optionValues)
{
    char error_text[1024] = "";
    struct sgp_image *code;
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    sgp_unlock();
    if (!module || !image || !sgp_jit_options_are_ok(numOptions, options, optionValues)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = sgp_image_load(image, &code, error_text, sizeof(error_text));
    sgp_jit_log(numOptions, options, optionValues, error_text);
    if (result) {
        return result;
    }
    result = sgp_enter(&context);
    if (result) {
        sgp_lock();
        sgp_image_release(code);
        return sgp_leave(result);
    }
    result = sgp_module_new(context, code, NULL, module);
    sgp_image_release(code);
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

SGP_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

SGP_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    void *data;
    CUresult result;

    if (!module || !fname) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = sgp_file_read(fname, &data, NULL);
    if (!result) {
        result = cuModuleLoadData(module, data);
    }
    free(data);
    return result;
}

static CUresult enter_module(CUmodule handle, struct CUctx_st **context)
{
    CUresult result = sgp_enter_by(handle, context);

    if (result) {
        return result;
    }
    return sgp_object_is(handle, SGP_MODULE) ? CUDA_SUCCESS : sgp_leave(CUDA_ERROR_INVALID_HANDLE);
}

SGP_EXPORT CUresult cuModuleUnload(CUmodule hmod)
{
    struct CUctx_st *context;
    CUresult result = enter_module(hmod, &context);

    if (result) {
        return result;
    }
    if (hmod->library) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE); /* the library's own: it goes with it */
    }
    context = hmod->object.context;
    sgp_object_keep(context);
    sgp_queue_drain(context);
    sgp_printf_flush(context);
    if (sgp_object_is(hmod, SGP_MODULE)) {
        sgp_module_delete(hmod);
    }
    sgp_object_release(context);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    struct CUctx_st *context;
    CUresult result = enter_module(hmod, &context);

    if (result) {
        return result;
    }
    if (!hfunc || !name || !*name) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (uint32_t i = 0; i < hmod->image->module->nr_kernels; i++) {
        if (!strcmp(hmod->functions[i].kernel->name, name)) {
            *hfunc = &hmod->functions[i];
            hmod->functions[i].is_loaded = true;
            return sgp_leave(CUDA_SUCCESS);
        }
    }
    return sgp_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult sgp_module_global(const struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes)
{
    const struct sgp_module *code = module->image->module;

    for (uint32_t i = 0; i < code->nr_globals; i++) {
        if (!strcmp(code->globals[i].name, name)) {
            if (address) {
                *address = (CUdeviceptr)(uintptr_t)(module->globals + code->globals[i].offset_bytes);
            }
            if (bytes) {
                *bytes = code->globals[i].size_bytes;
            }
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

SGP_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    struct CUctx_st *context;
    CUresult result = enter_module(hmod, &context);

    if (result) {
        return result;
    }
    return sgp_leave(name && (dptr || bytes) ? sgp_module_global(hmod, name, dptr, bytes) : CUDA_ERROR_INVALID_VALUE);
}

SGP_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    CUresult result = sgp_with_argument(sgp_enter_driver(), mode);

    if (result) {
        return result;
    }
    *mode = loads_eagerly() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(enter_module(mod, &context), count);

    if (result) {
        return result;
    }
    *count = mod->image->module->nr_kernels;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    struct CUctx_st *context;
    CUresult result = sgp_with_argument(enter_module(mod, &context), functions);

    if (result) {
        return result;
    }
    for (uint32_t i = 0; i < numFunctions && i < mod->image->module->nr_kernels; i++) {
        functions[i] = &mod->functions[i];
    }
    return sgp_leave(CUDA_SUCCESS);
}
