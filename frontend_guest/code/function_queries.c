/* What a program may ask about a function or kernel, and how what it sets is remembered. */
#include <stdlib.h>
#include <string.h>

#include "call/call.h"
#include "call/chunks.h"
#include "call/device.h"
#include "code/function.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "region/client.h"

/* The record behind a handle, with all that there is to know. */
static CUresult known(enum fgv_handle_kind kind, const void *handle, struct fgv_function **function)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *function = fgv_handle_object(kind, (uint64_t)(uintptr_t)handle);
    return !*function ? CUDA_ERROR_INVALID_HANDLE : fgv_function_know(*function);
}

/* What calls of later CUDA versions give for NULL where a function or kernel should be. */
static CUresult without_handle(void)
{
    CUresult result = fgv_client_is_open();
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

/* The record of what is asked about, where there is somewhere to answer. */
static CUresult question(enum fgv_handle_kind kind, const void *handle, const void *answer,
                         struct fgv_function **function)
{
    CUresult result = !handle ? without_handle() : fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *function = fgv_handle_object(kind, fgv_handle_number(handle));
    return !*function ? CUDA_ERROR_INVALID_HANDLE : !answer ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult attribute_get(const struct fgv_function *function, CUfunction_attribute attribute, int *value)
{
    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = function->attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct fgv_function *function;
    CUresult result = known(FGV_HANDLE_FUNCTION, hfunc, &function);
    return result != CUDA_SUCCESS ? result : attribute_get(function, attrib, pi);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    struct fgv_function *function;
    CUresult result = fgv_device_check(dev);
    if (result == CUDA_SUCCESS) {
        result = known(FGV_HANDLE_KERNEL, kernel, &function);
    }
    return result != CUDA_SUCCESS ? result : attribute_get(function, attrib, pi);
}

/* What was set changes what may be launched, and every answer about occupancy. Under the lock. */
static void attribute_set(struct fgv_function *function, CUfunction_attribute attribute, int value)
{
    if ((unsigned)attribute < FGV_NR_FUNCTION_ATTRIBUTES) {
        function->attributes[attribute] =
            attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED ? value != 0 : value;
    }
    for (uint32_t i = 0; i < FGV_NR_OCCUPANCIES; i++) {
        function->occupancies[i].call = 0;
    }
}

/* XLA sets the same value before each update of a graph. What is not known yet is not asked for. */
static bool is_set_already(struct fgv_function *function, CUfunction_attribute attribute, int value)
{
    const bool is_a_setting = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                              attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    if (!is_a_setting || atomic_load_explicit(&function->is_known, memory_order_acquire) == 0) {
        return false;
    }
    pthread_mutex_lock(&fgv_code_lock);
    const bool is_same = function->attributes[attribute] == value;
    pthread_mutex_unlock(&fgv_code_lock);
    return is_same;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct fgv_function *function = fgv_handle_object(FGV_HANDLE_FUNCTION, (uint64_t)(uintptr_t)hfunc);
    CUresult result = fgv_call_healthy();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX || !function) {
        return !function ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    }
    if (is_set_already(function, attrib, value)) {
        return CUDA_SUCCESS;
    }
    struct fgv_call call;
    struct fgv_request_cuFuncSetAttribute *request =
        fgv_call_begin(&call, FGV_CALL_cuFuncSetAttribute, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request =
        (struct fgv_request_cuFuncSetAttribute){.hfunc = (uint64_t)(uintptr_t)hfunc, .attrib = attrib, .value = value};
    result = fgv_call_wait(&call, NULL, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fgv_code_lock);
    attribute_set(function, attrib, value);
    pthread_mutex_unlock(&fgv_code_lock);
    return CUDA_SUCCESS;
}

void fgv_after_cuKernelSetAttribute(CUresult result, CUfunction_attribute attrib, int val, CUkernel kernel,
                                    CUdevice dev)
{
    (void)result;
    (void)dev;
    struct fgv_function *record = fgv_handle_object(FGV_HANDLE_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (!record) {
        return;
    }
    pthread_mutex_lock(&fgv_code_lock);
    attribute_set(record, attrib, val);
    for (struct fgv_function *function = record->derived; function; function = function->next) {
        attribute_set(function, attrib, val);
    }
    pthread_mutex_unlock(&fgv_code_lock);
}

static CUresult parameter_get(const struct fgv_function *function, size_t index, size_t *offset, size_t *size)
{
    if (!offset || index >= function->nr_parameters) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = function->parameters[index].offset_bytes;
    if (size) {
        *size = function->parameters[index].bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct fgv_function *function = NULL;
    CUresult result = !func ? without_handle() : known(FGV_HANDLE_FUNCTION, func, &function);
    return result != CUDA_SUCCESS ? result : parameter_get(function, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct fgv_function *function;
    CUresult result = known(FGV_HANDLE_KERNEL, kernel, &function);
    return result != CUDA_SUCCESS ? result : parameter_get(function, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct fgv_function *function;
    CUresult result = question(FGV_HANDLE_FUNCTION, hfunc, hmod, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (function->kernel != 0) {
        return cuLibraryGetModule(hmod, (CUlibrary)(uintptr_t)function->owner);
    }
    *hmod = (CUmodule)(uintptr_t)function->owner;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_function *record = fgv_handle_object(FGV_HANDLE_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (!record) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pLib) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pLib = (CUlibrary)(uintptr_t)record->owner;
    return CUDA_SUCCESS;
}

/* The name of an enumerated kernel or function comes from the worker, into a chunk. */
static CUresult name_fetch(struct fgv_function *kernel, uint32_t chunk)
{
    struct fgv_call call;
    struct fgv_request_cuKernelGetName *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuKernelGetName, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuKernelGetName){
        .kernel = kernel->handle, .chunk = chunk, .capacity = fgv_guest.chunk_bytes};
    struct fgv_reply_cuKernelGetName reply;
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (reply.bytes > fgv_guest.chunk_bytes) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    char *name = strndup((const char *)fgv_chunk_memory(chunk), reply.bytes);
    if (!name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fgv_code_lock);
    if (!kernel->name) {
        kernel->name = name;
    } else {
        free(name);
    }
    pthread_mutex_unlock(&fgv_code_lock);
    return CUDA_SUCCESS;
}

static CUresult name_get(struct fgv_function *kernel)
{
    pthread_mutex_lock(&fgv_code_lock);
    bool is_known = kernel->name != NULL;
    pthread_mutex_unlock(&fgv_code_lock);
    if (is_known) {
        return CUDA_SUCCESS;
    }
    uint32_t chunk;
    CUresult result = fgv_chunk_take(&chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = name_fetch(kernel, chunk);
    fgv_chunk_give(chunk);
    return result;
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    struct fgv_function *kernel;
    CUresult result = question(FGV_HANDLE_KERNEL, hfunc, name, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = name_get(kernel);
    if (result == CUDA_SUCCESS) {
        *name = kernel->name;
    }
    return result;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct fgv_function *function;
    CUresult result = question(FGV_HANDLE_FUNCTION, hfunc, name, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!function->name && function->kernel != 0) {
        return cuKernelGetName(name, (CUkernel)(uintptr_t)function->kernel);
    }
    result = name_get(function);
    if (result == CUDA_SUCCESS) {
        *name = function->name;
    }
    return result;
}
