/*
 * A function or a kernel, saved and found again in what was made of the same image: its name, and the attributes that a
 * program can set. The function that a kernel has in a context has the kernel's name, and only its attributes are
 * saved.
 *
 * Wrong when: a program set a preference for caches or for banks of shared memory. No driver tells those again.
 */
#include "calls/code.h"

#include <string.h>

#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/response.h"

/* Those before it say what the code is. */
#define FIRST_ATTRIBUTE CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#define NR_ATTRIBUTES   (CU_FUNC_ATTRIBUTE_MAX - FIRST_ATTRIBUTE)

struct saved_code {
    uint32_t name_bytes; /* that follow, 0: the function of a kernel */
    uint32_t has_attributes;
    int32_t attributes[NR_ATTRIBUTES];
};

static bool ask(struct fgw_worker *worker, enum fgv_handle_kind kind, void *native, uint32_t i, int32_t *value)
{
    const struct fgv_driver *driver = &worker->driver;
    const CUfunction_attribute attribute = (CUfunction_attribute)(FIRST_ATTRIBUTE + i);
    int told = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (kind == FGV_HANDLE_KERNEL && driver->cuKernelGetAttribute) {
        result = driver->cuKernelGetAttribute(&told, attribute, native, worker->device);
    } else if (kind == FGV_HANDLE_FUNCTION && driver->cuFuncGetAttribute) {
        result = driver->cuFuncGetAttribute(&told, attribute, native);
    }
    *value = told;
    return result == CUDA_SUCCESS;
}

static const char *name_of(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    const struct fgv_driver *driver = &worker->driver;
    const char *name = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (handle->kind == FGV_HANDLE_KERNEL && driver->cuKernelGetName) {
        result = driver->cuKernelGetName(&name, handle->native);
    } else if (handle->kind == FGV_HANDLE_FUNCTION && driver->cuFuncGetName) {
        result = driver->cuFuncGetName(&name, handle->native);
    }
    return result == CUDA_SUCCESS ? name : NULL;
}

const char *fgw_code_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const bool has_name = fgw_handle_above(worker, handle).kind != FGV_HANDLE_KERNEL;
    const char *name = NULL;
    struct saved_code saved = {0};
    if (fgw_kernel_lend_context(worker) != CUDA_SUCCESS || (has_name && !(name = name_of(worker, handle))) ||
        (has_name && strlen(name) > FGV_MAX_NAME_BYTES)) {
        return "the device library does not tell its name";
    }
    for (uint32_t i = 0; i < NR_ATTRIBUTES; i++) {
        if (ask(worker, handle->kind, handle->native, i, &saved.attributes[i])) {
            saved.has_attributes |= 1u << i;
        }
    }
    saved.name_bytes = has_name ? (uint32_t)strlen(name) : 0;
    fgw_saver_put(saver, &saved, sizeof(saved));
    fgw_saver_put(saver, name, saved.name_bytes);
    return NULL;
}

static const char *find_again(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved,
                              const uint8_t *name, uint32_t name_bytes)
{
    const struct fgv_request_cuModuleGetFunction of_module = {
        .module = head->above, .handle = head->number, .name_bytes = name_bytes, .chunk = FGV_NO_CHUNK};
    const struct fgv_request_cuLibraryGetKernel of_library = {
        .library = head->above, .handle = head->number, .name_bytes = name_bytes, .chunk = FGV_NO_CHUNK};
    const struct fgv_request_cuKernelGetFunction of_kernel = {.pFunc = head->number, .kernel = head->above};
    struct fgw_saved_call call = {.payload = name, .payload_bytes = name_bytes};
    if (head->kind == FGV_HANDLE_KERNEL) {
        call.call = FGV_CALL_cuLibraryGetKernel;
        call.fixed = &of_library;
    } else if (head->above_kind == FGV_HANDLE_MODULE) {
        call.call = FGV_CALL_cuModuleGetFunction;
        call.fixed = &of_module;
    } else {
        call.call = FGV_CALL_cuKernelGetFunction;
        call.fixed = &of_kernel;
    }
    return fgw_saved_serve(worker, saved, &call);
}

static const char *set_again(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved,
                             uint32_t i, int32_t value)
{
    const uint32_t attribute = (uint32_t)FIRST_ATTRIBUTE + i;
    const struct fgv_request_cuFuncSetAttribute of_function = {
        .hfunc = head->number, .attrib = attribute, .value = value};
    const struct fgv_request_cuKernelSetAttribute of_kernel = {
        .kernel = head->number, .attrib = attribute, .val = value};
    const bool is_kernel = head->kind == FGV_HANDLE_KERNEL;
    const struct fgw_saved_call call = {
        .call = is_kernel ? FGV_CALL_cuKernelSetAttribute : FGV_CALL_cuFuncSetAttribute,
        .fixed = is_kernel ? (const void *)&of_kernel : (const void *)&of_function,
    };
    return fgw_saved_serve(worker, saved, &call);
}

const char *fgw_code_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_code was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    const uint8_t *name = fgw_saved_view(saved, was.name_bytes);
    if (!name) {
        return FGW_SAVED_CUT_SHORT;
    }
    const char *why = find_again(worker, head, saved, name, was.name_bytes);
    void *native = NULL;
    if (!why) {
        fgw_worker_find(worker, head->kind, head->number, &native);
    }
    for (uint32_t i = 0; i < NR_ATTRIBUTES && !why; i++) {
        int32_t value;
        if ((was.has_attributes >> i & 1) != 0 &&
            (!ask(worker, head->kind, native, i, &value) || value != was.attributes[i])) {
            why = set_again(worker, head, saved, i, was.attributes[i]);
        }
    }
    return why;
}
