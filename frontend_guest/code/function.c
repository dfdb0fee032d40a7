/* Functions and kernels, and what the program may ask about them: see function.h. */
#include "code/function.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/chunks.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

pthread_mutex_t fgv_code_lock = PTHREAD_MUTEX_INITIALIZER;

/* Asking for a function, for a kernel, or about either is answered alike. */
_Static_assert(sizeof(struct fgv_reply_cuModuleGetFunction) == sizeof(struct fgv_reply_cuLibraryGetKernel),
               "same reply");
_Static_assert(sizeof(struct fgv_reply_cuModuleGetFunction) == sizeof(struct fgv_reply_kernel_info), "same reply");
_Static_assert(sizeof(struct fgv_request_cuModuleGetFunction) == sizeof(struct fgv_request_cuLibraryGetKernel),
               "same request");
_Static_assert(offsetof(struct fgv_request_cuModuleGetFunction, chunk) ==
                   offsetof(struct fgv_request_cuLibraryGetKernel, chunk),
               "same request");

struct fgv_function *fgv_function_make(enum fgv_handle_kind kind, uint64_t handle, uint64_t owner)
{
    struct fgv_function *function = calloc(1, sizeof(*function));
    if (!function) {
        return NULL;
    }
    function->kind = kind;
    function->handle = handle;
    function->owner = owner;
    function->context = fgv_thread.context;
    return function;
}

/* Takes over the reply; the parameters lie in the chunk. */
static CUresult info_take(struct fgv_function *function, const struct fgv_reply_cuModuleGetFunction *reply,
                          uint32_t chunk)
{
    if ((uint64_t)reply->nr_parameters * sizeof(struct fgv_parameter) > fgv_guest.chunk_bytes) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct fgv_parameter *parameters = malloc(reply->nr_parameters * sizeof(*parameters) + 1);
    if (!parameters) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(parameters, fgv_chunk_memory(chunk), reply->nr_parameters * sizeof(*parameters));
    for (uint32_t i = 0; i < reply->nr_parameters; i++) {
        if ((uint64_t)parameters[i].offset_bytes + parameters[i].bytes > reply->parameter_bytes) {
            free(parameters);
            return CUDA_ERROR_UNKNOWN;
        }
    }
    free(function->parameters);
    function->parameters = parameters;
    function->nr_parameters = reply->nr_parameters;
    function->parameter_bytes = reply->parameter_bytes;
    memcpy(function->attributes, reply->attributes, sizeof(function->attributes));
    atomic_store_explicit(&function->is_known, 1, memory_order_release);
    return CUDA_SUCCESS;
}

CUresult fgv_function_know(struct fgv_function *function)
{
    if (__builtin_expect(atomic_load_explicit(&function->is_known, memory_order_acquire) != 0, 1)) {
        return CUDA_SUCCESS;
    }
    uint32_t chunk;
    CUresult result = fgv_chunk_take(&chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_call call;
    struct fgv_reply_cuModuleGetFunction reply;
    struct fgv_request_kernel_info *request = fgv_call_begin_anywhere(&call, FGV_CALL_kernel_info, sizeof(*request), 0);
    if (request) {
        *request = (struct fgv_request_kernel_info){
            .handle = function->handle, .is_kernel = function->kind == FGV_HANDLE_KERNEL, .chunk = chunk};
        result = fgv_call_wait(&call, &reply, sizeof(reply));
    } else {
        result = call.error;
    }
    pthread_mutex_lock(&fgv_code_lock);
    if (result == CUDA_SUCCESS && atomic_load_explicit(&function->is_known, memory_order_relaxed) == 0) {
        result = info_take(function, &reply, chunk);
    }
    pthread_mutex_unlock(&fgv_code_lock);
    fgv_chunk_give(chunk);
    return result;
}

/* The question by name, and its answer, into a record that nobody else knows yet. */
static CUresult fetch(struct fgv_function *function, size_t name_bytes, uint32_t chunk)
{
    uint16_t number = function->kind == FGV_HANDLE_KERNEL ? FGV_CALL_cuLibraryGetKernel : FGV_CALL_cuModuleGetFunction;
    struct fgv_call call;
    struct fgv_request_cuModuleGetFunction *request =
        fgv_call_begin_anywhere(&call, number, sizeof(*request), (uint32_t)name_bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuModuleGetFunction){
        .module = function->owner, .handle = function->handle, .name_bytes = (uint32_t)name_bytes, .chunk = chunk};
    memcpy(call.payload, function->name, name_bytes);
    struct fgv_reply_cuModuleGetFunction reply;
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    return result != CUDA_SUCCESS ? result : info_take(function, &reply, chunk);
}

CUresult fgv_function_fetch(enum fgv_handle_kind kind, uint64_t owner, const char *name, struct fgv_function **made)
{
    size_t name_bytes = strlen(name);
    if (name_bytes == 0 || name_bytes > FGV_MAX_NAME_BYTES) {
        return CUDA_ERROR_NOT_FOUND;
    }
    CUresult result = fgv_client_await();
    uint64_t handle;
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_new(kind, &handle);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_function *function = fgv_function_make(kind, handle, owner);
    uint32_t chunk;
    if (!function || !(function->name = strdup(name))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        result = fgv_chunk_take(&chunk);
    }
    if (result == CUDA_SUCCESS) {
        result = fetch(function, name_bytes, chunk);
        fgv_chunk_give(chunk);
    }
    if (result == CUDA_SUCCESS) {
        fgv_handle_set_object(kind, handle, function);
        *made = function;
        return CUDA_SUCCESS;
    }
    fgv_handle_drop(kind, handle);
    if (function) {
        free(function->name);
    }
    free(function);
    return result;
}

void fgv_function_free_derived(struct fgv_function *kernel, const struct fgv_context *context)
{
    struct fgv_function **link = &kernel->derived;
    while (*link) {
        struct fgv_function *function = *link;
        if (context && function->context != context) {
            link = &function->next;
            continue;
        }
        *link = function->next;
        fgv_function_free(function);
    }
}

void fgv_function_free(struct fgv_function *function)
{
    fgv_function_free_derived(function, NULL);
    fgv_handle_drop(function->kind, function->handle);
    free(function->parameters);
    free(function->name);
    free(function);
}

/* ---- kernels ---- */

/* What a function has from its kernel. Under the lock. */
static bool derive(struct fgv_function *function, const struct fgv_function *kernel)
{
    function->kernel = kernel->handle;
    if (kernel->name && !(function->name = strdup(kernel->name))) {
        return false;
    }
    if (atomic_load_explicit(&kernel->is_known, memory_order_relaxed) == 0) {
        return true;
    }
    function->parameters = malloc(kernel->nr_parameters * sizeof(*function->parameters) + 1);
    if (!function->parameters) {
        return false;
    }
    memcpy(function->parameters, kernel->parameters, kernel->nr_parameters * sizeof(*function->parameters));
    function->nr_parameters = kernel->nr_parameters;
    function->parameter_bytes = kernel->parameter_bytes;
    memcpy(function->attributes, kernel->attributes, sizeof(function->attributes));
    atomic_store_explicit(&function->is_known, 1, memory_order_relaxed); /* nobody else has the handle yet */
    return true;
}

static struct fgv_function *derived_find(const struct fgv_function *kernel, const struct fgv_context *context)
{
    struct fgv_function *function = kernel->derived;
    while (function && function->context != context) {
        function = function->next;
    }
    return function;
}

static CUresult kernel_function(struct fgv_function *kernel, struct fgv_function **function)
{
    pthread_mutex_lock(&fgv_code_lock);
    *function = derived_find(kernel, fgv_thread.context);
    pthread_mutex_unlock(&fgv_code_lock);
    if (*function) {
        return CUDA_SUCCESS;
    }
    uint64_t handle;
    CUresult result = fgv_handle_new(FGV_HANDLE_FUNCTION, &handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_call call;
    struct fgv_request_cuKernelGetFunction *request =
        fgv_call_begin(&call, FGV_CALL_cuKernelGetFunction, sizeof(*request), 0);
    if (request) {
        *request = (struct fgv_request_cuKernelGetFunction){.pFunc = handle, .kernel = kernel->handle};
    }
    result = !request ? call.error : fgv_call_wait(&call, NULL, 0);
    struct fgv_function *made =
        result == CUDA_SUCCESS ? fgv_function_make(FGV_HANDLE_FUNCTION, handle, kernel->owner) : NULL;
    if (!made) {
        fgv_handle_drop(FGV_HANDLE_FUNCTION, handle);
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    pthread_mutex_lock(&fgv_code_lock);
    *function = derived_find(kernel, fgv_thread.context); /* another thread may have been faster */
    if (!*function && derive(made, kernel)) {
        fgv_handle_set_object(FGV_HANDLE_FUNCTION, handle, made);
        made->next = kernel->derived;
        kernel->derived = made;
        *function = made;
    } else {
        fgv_function_free(made);
    }
    pthread_mutex_unlock(&fgv_code_lock);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fgv_function_of_either(CUfunction either, struct fgv_function **function)
{
    uint64_t handle = (uint64_t)(uintptr_t)either;
    *function = fgv_handle_object(FGV_HANDLE_FUNCTION, handle);
    if (*function) {
        return CUDA_SUCCESS;
    }
    struct fgv_function *kernel = fgv_handle_object(FGV_HANDLE_KERNEL, handle);
    return !kernel ? CUDA_ERROR_INVALID_HANDLE : kernel_function(kernel, function);
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_function *record = fgv_handle_object(FGV_HANDLE_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (!record) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pFunc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_function *function;
    result = kernel_function(record, &function);
    if (result == CUDA_SUCCESS) {
        *pFunc = (CUfunction)(uintptr_t)function->handle;
    }
    return result;
}
