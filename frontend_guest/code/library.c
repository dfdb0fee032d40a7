/* Libraries: code without a context, as the runtime loads it. */
#include "base/thread.h"
#include "call/call.h"
#include "code/code.h"
#include "code/image.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "region/client.h"

/* One option names the program's own functions, the other says that `code` stays and has no value: neither matters
 * here.
 */
static bool options_are_sound(const CUlibraryOption *options, unsigned int nr_options)
{
    if (!options) {
        return nr_options == 0;
    }
    for (unsigned int i = 0; i < nr_options; i++) {
        if ((unsigned int)options[i] >= CU_LIBRARY_NUM_OPTIONS) {
            return false;
        }
    }
    return true;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    (void)libraryOptionValues;
    const struct fgv_jit_options jit = {numJitOptions, jitOptions, jitOptionsValues};
    if (!library || !options_are_sound(libraryOptions, numLibraryOptions)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t handle;
    CUresult result = fgv_image_load(FGV_HANDLE_LIBRARY, code, &jit, &handle);
    if (result == CUDA_SUCCESS) {
        *library = (CUlibrary)(uintptr_t)handle;
    }
    return result;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                               void **libraryOptionValues, unsigned int numLibraryOptions)
{
    (void)libraryOptionValues;
    const struct fgv_jit_options jit = {numJitOptions, jitOptions, jitOptionsValues};
    if (!library || !options_are_sound(libraryOptions, numLibraryOptions)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t handle;
    CUresult result = fgv_image_load_file(FGV_HANDLE_LIBRARY, fileName, &jit, &handle);
    if (result == CUDA_SUCCESS) {
        *library = (CUlibrary)(uintptr_t)handle;
    }
    return result;
}

static void forget_module(uint64_t handle, void *object, void *context)
{
    (void)handle;
    struct fgv_code *code = object;
    const uint64_t *library = context;
    if (code && code->library == *library) {
        fgv_code_free(code, true);
    }
}

void fgv_after_cuLibraryUnload(CUresult result, CUlibrary library)
{
    (void)result;
    uint64_t handle = (uint64_t)(uintptr_t)library;
    struct fgv_code *code = fgv_handle_object(FGV_HANDLE_LIBRARY, handle);
    if (!code) {
        return;
    }
    fgv_handle_each(FGV_HANDLE_MODULE, forget_module, &handle);
    fgv_code_free(code, false);
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    uint64_t handle;
    CUresult result = fgv_code_function(FGV_HANDLE_KERNEL, (uint64_t)(uintptr_t)library, name, &handle);
    if (result == CUDA_SUCCESS && !pKernel) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *pKernel = (CUkernel)(uintptr_t)handle;
    }
    return result;
}

/* The module of a library in the current context, if it was asked for before. */
struct wanted {
    uint64_t library;
    const struct fgv_context *context;
    uint64_t found;
};

static void look_for_module(uint64_t handle, void *object, void *context)
{
    struct wanted *wanted = context;
    const struct fgv_code *code = object;
    if (code && code->library == wanted->library && code->context == wanted->context) {
        wanted->found = handle;
    }
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    struct wanted wanted = {.library = (uint64_t)(uintptr_t)library, .context = fgv_thread.context};
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_LIBRARY, wanted.library);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pMod) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgv_handle_each(FGV_HANDLE_MODULE, look_for_module, &wanted);
    if (wanted.found == 0) {
        result = fgv_handle_new(FGV_HANDLE_MODULE, &wanted.found);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        struct fgv_call call;
        struct fgv_request_cuLibraryGetModule *request =
            fgv_call_begin(&call, FGV_CALL_cuLibraryGetModule, sizeof(*request), 0);
        if (request) {
            *request = (struct fgv_request_cuLibraryGetModule){.pMod = wanted.found, .library = wanted.library};
        }
        result = !request ? call.error : fgv_call_wait(&call, NULL, 0);
        struct fgv_code *code = result == CUDA_SUCCESS ? fgv_code_make(FGV_HANDLE_MODULE, wanted.found) : NULL;
        if (!code) {
            fgv_handle_drop(FGV_HANDLE_MODULE, wanted.found);
            return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
        }
        code->library = wanted.library;
    }
    *pMod = (CUmodule)(uintptr_t)wanted.found;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_LIBRARY, (uint64_t)(uintptr_t)library);
    }
    return result != CUDA_SUCCESS
               ? result
               : fgv_code_global(FGV_CALL_cuLibraryGetGlobal, (uint64_t)(uintptr_t)library, name, dptr, bytes);
}

CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    CUresult result = fgv_client_is_open();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_LIBRARY, (uint64_t)(uintptr_t)library);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    (void)fptr;
    (void)symbol;
    return CUDA_ERROR_INVALID_VALUE; /* there is none of that name */
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    return fgv_code_enumerate(FGV_CALL_cuLibraryEnumerateKernels, FGV_HANDLE_KERNEL, (uint64_t)(uintptr_t)lib,
                              numKernels, (uint64_t *)(void *)kernels);
}
