/*
 * Code that is loaded before it is launched, as CUDA_MODULE_LOADING=EAGER of the guest's program asks for. The device
 * library has read that variable of the worker's before there was a program, and may load a function when it is
 * launched first, for which it may wait for what runs: kernels that wait for each other then do so for ever. So each
 * function is loaded here: with its module; of a library in each context, those made later included.
 *
 * What cannot be loaded is no error: whoever launches it is told why.
 *
 * Wrong when: the device library is older than CUDA 12.4. It loads as its own variable says.
 */
#include "calls/eager.h"

#include <stdlib.h>

#include "client/current.h"
#include "client/handles.h"
#include "client/state.h"

void fgw_eager_load_module(struct fgw_worker *worker, CUmodule module)
{
    const struct fgv_driver *driver = &worker->driver;
    unsigned int nr = 0;
    if (!driver->cuModuleGetFunctionCount || !driver->cuModuleEnumerateFunctions || !driver->cuFuncLoad ||
        driver->cuModuleGetFunctionCount(&nr, module) != CUDA_SUCCESS) {
        return;
    }
    CUfunction *functions = calloc(nr, sizeof(CUfunction));
    if (functions && driver->cuModuleEnumerateFunctions(functions, nr, module) == CUDA_SUCCESS) {
        for (unsigned int i = 0; i < nr; i++) {
            driver->cuFuncLoad(functions[i]);
        }
    }
    free(functions);
}

/* Into the current context. */
static void load_library_here(struct fgw_worker *worker, CUlibrary library)
{
    CUmodule module;
    if (worker->driver.cuLibraryGetModule && worker->driver.cuLibraryGetModule(&module, library) == CUDA_SUCCESS) {
        fgw_eager_load_module(worker, module);
    }
}

void fgw_eager_load_library(struct fgw_worker *worker, CUlibrary library)
{
    struct fgw_context *before = worker->current;
    worker->calls->is_eager = true;
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            fgw_context_make_current(worker, worker->contexts[i]);
            load_library_here(worker, library);
        }
    }
    fgw_context_make_current(worker, before);
}

void fgw_eager_load_here(struct fgw_worker *worker)
{
    struct fgw_handle handle;
    for (uint32_t at = 0; worker->calls->is_eager && fgw_handle_next(worker, FGV_HANDLE_LIBRARY, &at, &handle);) {
        load_library_here(worker, handle.native);
    }
}
