/*
 * Libraries: code without a context. A module of the library comes into being in each context in which it is first
 * used; kernels are the library's handles, valid in all contexts.
 */
#include "code/library.h"

#include <stdlib.h>
#include <string.h>

#include "code/loading.h"
#include "cuda_api/prototypes.h"
#include "device/printf.h"
#include "stream/queue.h"

static void library_destroy(void *object)
{
    struct CUlib_st *library = object;

    if (library->image) {
        sgp_image_release(library->image);
    }
    free(library->kernels);
    free(library);
}

static bool kernels_new(struct CUlib_st *library)
{
    const struct sgp_module *code = library->image->module;

    library->kernels = calloc(code->nr_kernels + 1, sizeof(*library->kernels));
    if (!library->kernels) {
        return false;
    }
    for (uint32_t i = 0; i < code->nr_kernels; i++) {
        struct CUkern_st *kernel = &library->kernels[i];

        if (!sgp_object_add(kernel, SGP_KERNEL, NULL)) {
            return false;
        }
        kernel->library = library;
        kernel->kernel = &code->kernels[i];
        kernel->index = i;
        for (int device = 0; device < SGP_MAX_DEVICES; device++) {
            sgp_function_settings_reset(&kernel->settings[device], kernel->kernel);
        }
    }
    return true;
}

static void library_delete(struct CUlib_st *library)
{
    for (uint32_t i = 0; library->kernels && i < library->image->module->nr_kernels; i++) {
        sgp_object_remove(&library->kernels[i]);
    }
    sgp_object_remove(library);
    sgp_object_release(library);
}

/* With the lock. Takes the image over. */
static CUresult library_new(struct sgp_image *image, CUlibrary *result)
{
    struct CUlib_st *library = calloc(1, sizeof(*library));

    if (!library || !sgp_object_add(library, SGP_LIBRARY, library_destroy)) {
        free(library);
        sgp_image_release(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->image = image;
    if (!kernels_new(library)) {
        library_delete(library);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *result = library;
    return CUDA_SUCCESS;
}

static bool library_options_are_ok(unsigned int nr_options, const CUlibraryOption *options)
{
    if (nr_options && !options) {
        return false;
    }
    for (unsigned int i = 0; i < nr_options; i++) {
        if ((unsigned int)options[i] >= CU_LIBRARY_NUM_OPTIONS) {
            return false;
        }
    }
    return true;
}

SGP_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                      void **jitOptionsValues, unsigned int numJitOptions,
                                      CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                      unsigned int numLibraryOptions)
{
    char error_text[1024] = "";
    struct sgp_image *image;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    sgp_unlock();
    if (!library || !code || !sgp_jit_options_are_ok(numJitOptions, jitOptions, jitOptionsValues) ||
        !library_options_are_ok(numLibraryOptions, libraryOptions)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    (void)libraryOptionValues; /* neither option changes what this driver does: it never keeps the program's bytes */
    result = sgp_image_load(code, &image, error_text, sizeof(error_text));
    sgp_jit_log(numJitOptions, jitOptions, jitOptionsValues, error_text);
    if (result) {
        return result;
    }
    sgp_lock();
    return sgp_leave(library_new(image, library));
}

SGP_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                                          void **jitOptionsValues, unsigned int numJitOptions,
                                          CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                          unsigned int numLibraryOptions)
{
    void *data;
    CUresult result;

    if (!library || !fileName) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = sgp_file_read(fileName, &data, NULL);
    if (!result) {
        result = cuLibraryLoadData(library, data, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                                   libraryOptionValues, numLibraryOptions);
    }
    free(data);
    return result;
}

static CUresult enter_library(CUlibrary handle)
{
    return sgp_enter_object(handle, SGP_LIBRARY, CUDA_ERROR_INVALID_HANDLE);
}

static struct CUmod_st *module_in(const struct CUctx_st *context, const struct CUlib_st *library)
{
    struct CUmod_st *module = context->modules;

    while (module && module->library != library) {
        module = module->next;
    }
    return module;
}

CUresult sgp_library_module(struct CUctx_st *context, struct CUlib_st *library, struct CUmod_st **module)
{
    *module = module_in(context, library);
    return *module ? CUDA_SUCCESS : sgp_module_new(context, library->image, library, module);
}

static struct CUmod_st *module_anywhere(const struct CUlib_st *library)
{
    struct CUmod_st *module = NULL;

    for (struct CUctx_st *context = sgp_contexts; context && !module; context = context->next) {
        module = module_in(context, library);
    }
    return module;
}

SGP_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    struct CUmod_st *module;
    CUresult result = enter_library(library);

    if (result) {
        return result;
    }
    sgp_object_keep(library);
    for (module = module_anywhere(library); module; module = module_anywhere(library)) {
        struct CUctx_st *context = module->object.context;

        sgp_object_keep(context);
        sgp_queue_drain(context);
        sgp_printf_flush(context);
        module = module_in(context, library); /* others ran meanwhile */
        if (module) {
            sgp_module_delete(module);
        }
        sgp_object_release(context);
    }
    if (sgp_object_is(library, SGP_LIBRARY)) {
        library_delete(library);
    }
    sgp_object_release(library);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult result = enter_library(library);

    if (result) {
        return result;
    }
    if (!pKernel || !name) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (uint32_t i = 0; i < library->image->module->nr_kernels; i++) {
        if (!strcmp(library->kernels[i].kernel->name, name)) {
            *pKernel = &library->kernels[i];
            return sgp_leave(CUDA_SUCCESS);
        }
    }
    return sgp_leave(CUDA_ERROR_NOT_FOUND);
}

/* The library's module in the current context. */
static CUresult enter_module_of(CUlibrary library, struct CUmod_st **module)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!sgp_object_is(library, SGP_LIBRARY)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    result = sgp_library_module(context, library, module);
    return result ? sgp_leave(result) : CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    struct CUmod_st *module;
    CUresult result = sgp_with_argument(enter_module_of(library, &module), pMod);

    if (result) {
        return result;
    }
    *pMod = module;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    struct CUmod_st *module;
    CUresult result = enter_module_of(library, &module);

    if (result) {
        return result;
    }
    return sgp_leave(name && (dptr || bytes) ? sgp_module_global(module, name, dptr, bytes) : CUDA_ERROR_INVALID_VALUE);
}

static bool is_managed(const struct CUlib_st *library, const char *name)
{
    const struct sgp_module *code = library->image->module;

    for (uint32_t i = 0; i < code->nr_globals; i++) {
        if (!strcmp(code->globals[i].name, name)) {
            return code->globals[i].is_managed;
        }
    }
    return false;
}

/* All memory of this device is memory of the process: a variable is managed by being told. It is that of the current
 * context, or of the primary one: a program that uses another has two. */
SGP_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    struct CUctx_st *context;
    struct CUmod_st *module;
    CUresult result = enter_library(library);

    if (result) {
        return result;
    }
    if (!name || (!dptr && !bytes)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!is_managed(library, name)) {
        return sgp_leave(CUDA_ERROR_NOT_FOUND);
    }
    context = sgp_context_current();
    if (!context) {
        context = sgp_context_primary(&sgp_devices[0]);
    }
    if (!context) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = sgp_library_module(context, library, &module);
    return sgp_leave(result ? result : sgp_module_global(module, name, dptr, bytes));
}

SGP_EXPORT CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    CUresult result = enter_library(library);

    (void)fptr;
    (void)symbol;
    if (result) {
        return result;
    }
    return sgp_leave(CUDA_ERROR_INVALID_VALUE); /* there is none of that name */
}

SGP_EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    CUresult result = sgp_with_argument(enter_library(lib), count);

    if (result) {
        return result;
    }
    *count = lib->image->module->nr_kernels;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    CUresult result = enter_library(lib);

    if (result) {
        return result;
    }
    if (!kernels || !numKernels) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (uint32_t i = 0; i < numKernels && i < lib->image->module->nr_kernels; i++) {
        kernels[i] = &lib->kernels[i];
    }
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult enter_kernel(CUkernel handle)
{
    return sgp_enter_object(handle, SGP_KERNEL, CUDA_ERROR_INVALID_HANDLE);
}

SGP_EXPORT CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct CUctx_st *context;
    struct CUmod_st *module;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!sgp_object_is(kernel, SGP_KERNEL)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!pFunc) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_library_module(context, kernel->library, &module);
    if (!result) {
        *pFunc = &module->functions[kernel->index];
        (*pFunc)->settings = kernel->settings[context->device->ordinal];
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    CUresult result = enter_kernel(kernel);

    if (result) {
        return result;
    }
    if (!sgp_device_find(dev)) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    return sgp_leave(
        sgp_function_attribute_get(kernel->library->image->module, kernel->kernel, &kernel->settings[dev], attrib, pi));
}

SGP_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    CUresult result = enter_kernel(kernel);

    if (result) {
        return result;
    }
    if (!sgp_device_find(dev)) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    result = sgp_function_attribute_set(kernel->kernel, &kernel->settings[dev], attrib, val);
    /* Functions of this kernel that exist already follow. */
    for (struct CUctx_st *context = sgp_contexts; context && !result; context = context->next) {
        struct CUmod_st *module = context->device->ordinal == dev ? module_in(context, kernel->library) : NULL;

        if (module) {
            module->functions[kernel->index].settings = kernel->settings[dev];
        }
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    CUresult result = enter_kernel(hfunc);

    if (result) {
        return result == CUDA_ERROR_INVALID_HANDLE && !hfunc ? CUDA_ERROR_INVALID_VALUE : result;
    }
    if (!name) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *name = hfunc->kernel->name;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    CUresult result = enter_kernel(kernel);

    return result ? result : sgp_leave(sgp_parameter_info(kernel->kernel, paramIndex, paramOffset, paramSize));
}

SGP_EXPORT CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    CUresult result = sgp_with_argument(enter_kernel(kernel), pLib);

    if (result) {
        return result;
    }
    *pLib = kernel->library;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    CUresult result = enter_kernel(kernel);

    if (result) {
        return result;
    }
    if (!sgp_device_find(dev)) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    return sgp_leave((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE
                                                                       : CUDA_SUCCESS); /* a hint */
}
