/* What modules and libraries have in common: see code.h. */
#include "code/code.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "managed/managed_variable.h"
#include "memory/ranges.h"
#include "region/client.h"

_Static_assert(sizeof(struct fgv_request_cuModuleGetGlobal_v2) == sizeof(struct fgv_request_cuLibraryGetGlobal),
               "same request");
_Static_assert(sizeof(struct fgv_reply_cuModuleGetGlobal_v2) == sizeof(struct fgv_reply_cuLibraryGetGlobal),
               "same reply");
_Static_assert(sizeof(struct fgv_request_cuModuleEnumerateFunctions) ==
                   sizeof(struct fgv_request_cuLibraryEnumerateKernels),
               "same request");

bool fgv_code_is_eager(void)
{
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    return wanted && strcmp(wanted, "EAGER") == 0;
}

CUresult fgv_code_allowed(enum fgv_handle_kind kind)
{
    return kind == FGV_HANDLE_LIBRARY ? fgv_client_is_open() : fgv_call_allowed();
}

struct fgv_code *fgv_code_make(enum fgv_handle_kind kind, uint64_t handle)
{
    struct fgv_code *code = calloc(1, sizeof(*code));
    if (!code) {
        return NULL;
    }
    *code = (struct fgv_code){.kind = kind, .handle = handle, .context = fgv_thread.context};
    fgv_handle_set_object(kind, handle, code);
    return code;
}

void fgv_code_free(struct fgv_code *code, bool drops)
{
    fgv_managed_variables_forget(code->handle);
    fgv_memory_forget_owner(code->handle);
    pthread_mutex_lock(&fgv_code_lock);
    while (code->functions) {
        struct fgv_function *function = code->functions;
        code->functions = function->next;
        fgv_function_free(function);
    }
    pthread_mutex_unlock(&fgv_code_lock);
    if (drops) {
        fgv_handle_drop(code->kind, code->handle);
    }
    free(code);
}

static struct fgv_function *named_find(const struct fgv_code *code, const char *name)
{
    struct fgv_function *function = code->functions;
    while (function && (!function->name || strcmp(function->name, name) != 0)) {
        function = function->next;
    }
    return function;
}

CUresult fgv_code_function(enum fgv_handle_kind kind, uint64_t owner, const char *name, uint64_t *handle)
{
    enum fgv_handle_kind owner_kind = kind == FGV_HANDLE_KERNEL ? FGV_HANDLE_LIBRARY : FGV_HANDLE_MODULE;
    CUresult result = fgv_code_allowed(owner_kind);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_code *code = fgv_handle_object(owner_kind, owner);
    if (!code) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!name || !handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fgv_code_lock);
    struct fgv_function *function = named_find(code, name);
    pthread_mutex_unlock(&fgv_code_lock);
    if (!function) {
        struct fgv_function *made;
        result = fgv_function_fetch(kind, owner, name, &made);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        pthread_mutex_lock(&fgv_code_lock);
        function = named_find(code, name); /* another thread may have been faster; its handle is the one */
        if (!function) {
            made->next = code->functions;
            code->functions = function = made;
        } else {
            fgv_function_free(made);
        }
        pthread_mutex_unlock(&fgv_code_lock);
    }
    *handle = function->handle;
    return CUDA_SUCCESS;
}

CUresult fgv_code_global(uint16_t number, uint64_t owner, const char *name, CUdeviceptr *address, size_t *bytes)
{
    size_t name_bytes = !name ? 0 : strlen(name);
    if (!name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (name_bytes == 0 || name_bytes > FGV_MAX_NAME_BYTES) {
        return CUDA_ERROR_NOT_FOUND;
    }
    struct fgv_call call;
    struct fgv_request_cuModuleGetGlobal_v2 *request =
        fgv_call_begin_anywhere(&call, number, sizeof(*request), (uint32_t)name_bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuModuleGetGlobal_v2){.module = owner, .name_bytes = (uint32_t)name_bytes};
    memcpy(call.payload, name, name_bytes);
    struct fgv_reply_cuModuleGetGlobal_v2 reply;
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgv_variable variable = {.address = reply.address, .bytes = reply.bytes, .owner = owner};
    if (reply.is_managed == 0) {
        fgv_memory_enter(reply.address, reply.bytes, FGV_MEMORY_GLOBAL, 0, owner);
    } else {
        result = fgv_managed_variable_use(&variable, name);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (address) {
        *address = reply.address;
    }
    if (bytes) {
        *bytes = reply.bytes;
    }
    return CUDA_SUCCESS;
}

/* Records for the first `count` of a run of handles; the rest of `room` is dropped. */
static CUresult enumerated_take(enum fgv_handle_kind kind, struct fgv_code *code, uint64_t first, uint32_t count,
                                uint32_t room)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < room; i++) {
        struct fgv_function *function = i < count ? fgv_function_make(kind, first + i, code->handle) : NULL;
        if (!function) {
            fgv_handle_drop(kind, first + i);
            if (i < count) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
            }
            continue;
        }
        fgv_handle_set_object(kind, first + i, function);
        pthread_mutex_lock(&fgv_code_lock);
        function->next = code->functions;
        code->functions = function;
        pthread_mutex_unlock(&fgv_code_lock);
    }
    return result;
}

CUresult fgv_code_enumerate(uint16_t number, enum fgv_handle_kind kind, uint64_t owner, uint32_t count,
                            uint64_t *handles)
{
    CUresult result = fgv_code_allowed(kind == FGV_HANDLE_KERNEL ? FGV_HANDLE_LIBRARY : FGV_HANDLE_MODULE);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_code *code =
        fgv_handle_object(kind == FGV_HANDLE_KERNEL ? FGV_HANDLE_LIBRARY : FGV_HANDLE_MODULE, owner);
    if (!code) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!handles || count == 0) {
        return !handles ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    uint64_t first;
    result = fgv_handle_new_run(kind, count, &first);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_call call;
    struct fgv_reply_cuModuleEnumerateFunctions reply = {.count = 0};
    struct fgv_request_cuModuleEnumerateFunctions *request =
        fgv_call_begin_anywhere(&call, number, sizeof(*request), 0);
    if (request) {
        *request =
            (struct fgv_request_cuModuleEnumerateFunctions){.module = owner, .first_handle = first, .count = count};
    }
    result = !request ? call.error : fgv_call_wait(&call, &reply, sizeof(reply));
    uint32_t nr_given = result != CUDA_SUCCESS ? 0 : reply.count < count ? reply.count : count;
    CUresult taken = enumerated_take(kind, code, first, nr_given, count);
    for (uint32_t i = 0; i < nr_given; i++) {
        handles[i] = first + i;
    }
    return result != CUDA_SUCCESS ? result : taken;
}
