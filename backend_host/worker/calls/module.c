/*
 * Modules, libraries, and what is in them. How parameters of a kernel lie is asked once, when its handle is made, and
 * told to the guest, which packs them.
 */
#include <stdlib.h>
#include <string.h>

#include "calls/bound.h"
#include "client/arena.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/response.h"

#define FGW_MAX_ENUMERATED 65536u

_Static_assert(sizeof(struct fgv_reply_cuModuleGetFunction) == sizeof(struct fgv_reply_kernel_info),
               "one shape for both");
_Static_assert(sizeof(struct fgv_reply_cuLibraryGetKernel) == sizeof(struct fgv_reply_kernel_info),
               "one shape for both");

/* The name in the payload as a C string; false when it is none. */
static bool copy_name(const struct fgw_request *request, uint32_t name_bytes, char name[FGV_MAX_NAME_BYTES + 1])
{
    if (name_bytes == 0 || name_bytes > FGV_MAX_NAME_BYTES || name_bytes != request->payload_bytes) {
        return false;
    }
    memcpy(name, request->payload, name_bytes);
    name[name_bytes] = '\0';
    return strlen(name) == name_bytes;
}

/* All that the guest wants to know of a kernel or function, so that it never asks again. */
static CUresult tell_kernel(struct fgw_worker *worker, const struct fgw_handle *handle, uint32_t chunk,
                            struct fgv_reply_kernel_info *answer)
{
    uint8_t *told = chunk == FGV_NO_CHUNK ? NULL : fgw_arena_chunk(worker, chunk);
    uint32_t room = told ? worker->layout.chunk_bytes / (uint32_t)sizeof(struct fgv_parameter) : 0;
    struct fgw_kernel kernel;
    CUresult result = fgw_kernel_walk(worker, handle, &kernel, told, room);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    answer->nr_parameters = kernel.nr_parameters;
    answer->parameter_bytes = kernel.parameter_bytes;
    for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++) {
        int value = 0;
        result = CUDA_ERROR_NOT_SUPPORTED;
        if (handle->kind == FGV_HANDLE_KERNEL && worker->driver.cuKernelGetAttribute) {
            result =
                worker->driver.cuKernelGetAttribute(&value, (CUfunction_attribute)i, handle->native, worker->device);
        } else if (handle->kind == FGV_HANDLE_FUNCTION && worker->driver.cuFuncGetAttribute) {
            result = worker->driver.cuFuncGetAttribute(&value, (CUfunction_attribute)i, handle->native);
        }
        answer->attributes[i] = result == CUDA_SUCCESS ? value : 0;
    }
    return CUDA_SUCCESS;
}

CUresult fgw_serve_kernel_info(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_kernel_info *fixed = request->fixed;
    const struct fgw_handle handle =
        fgw_handle_find(worker, fixed->is_kernel ? FGV_HANDLE_KERNEL : FGV_HANDLE_FUNCTION, fixed->handle);
    return handle.number != 0 ? tell_kernel(worker, &handle, fixed->chunk, reply) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fgw_serve_cuModuleGetFunction(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuModuleGetFunction *fixed = request->fixed;
    char name[FGV_MAX_NAME_BYTES + 1];
    void *module;
    CUfunction function = NULL;
    if (!copy_name(request, fixed->name_bytes, name)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_MODULE, fixed->module, &module);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_can_bind(worker, FGV_HANDLE_FUNCTION, fixed->handle);
    }
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuModuleGetFunction ? worker->driver.cuModuleGetFunction(&function, module, name)
                                                    : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_bind_under(worker, FGV_HANDLE_FUNCTION, fixed->handle, function, FGV_HANDLE_MODULE,
                                       fixed->module);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_FUNCTION, fixed->handle);
    result = tell_kernel(worker, &handle, fixed->chunk, reply);
    if (result != CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_FUNCTION, fixed->handle);
    }
    return result;
}

CUresult fgw_serve_cuLibraryGetKernel(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLibraryGetKernel *fixed = request->fixed;
    char name[FGV_MAX_NAME_BYTES + 1];
    void *library;
    CUkernel kernel = NULL;
    if (!copy_name(request, fixed->name_bytes, name)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_LIBRARY, fixed->library, &library);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_can_bind(worker, FGV_HANDLE_KERNEL, fixed->handle);
    }
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuLibraryGetKernel ? worker->driver.cuLibraryGetKernel(&kernel, library, name)
                                                   : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
        result =
            fgw_worker_bind_under(worker, FGV_HANDLE_KERNEL, fixed->handle, kernel, FGV_HANDLE_LIBRARY, fixed->library);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_KERNEL, fixed->handle);
    result = tell_kernel(worker, &handle, fixed->chunk, reply);
    if (result != CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_KERNEL, fixed->handle);
    }
    return result;
}

static bool is_managed(const struct fgw_worker *worker, CUdeviceptr address)
{
    unsigned int is_one = 0;
    return worker->driver.cuPointerGetAttribute &&
           worker->driver.cuPointerGetAttribute(&is_one, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS &&
           is_one != 0;
}

/* What a guest names: the request's payload is the variable's name. */
static CUresult find_named(struct fgw_worker *worker, const struct fgw_request *request,
                           enum fgv_handle_kind owner_kind, uint64_t number, uint32_t name_bytes,
                           struct fgv_reply_cuModuleGetGlobal_v2 *answer)
{
    char name[FGV_MAX_NAME_BYTES + 1];
    void *owner;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (!copy_name(request, name_bytes, name)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgw_worker_find(worker, owner_kind, number, &owner);
    if (result == CUDA_SUCCESS) {
        result = fgw_variable_find(worker, owner_kind, owner, name, &address, &bytes);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *answer = (struct fgv_reply_cuModuleGetGlobal_v2){.bytes = bytes, .is_managed = is_managed(worker, address)};
    if (answer->is_managed) {
        fgw_bound_add_managed(worker, owner_kind, number);
    }
    const struct fgw_told_variable variable = {.now = address,
                                               .bytes = bytes,
                                               .owner_kind = owner_kind,
                                               .owner = number,
                                               .context = worker->current ? worker->current->handle : 0,
                                               .name = name};
    return fgw_told_tell(worker, &variable, &answer->address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fgw_serve_cuModuleGetGlobal_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuModuleGetGlobal_v2 *fixed = request->fixed;
    return find_named(worker, request, FGV_HANDLE_MODULE, fixed->module, fixed->name_bytes, reply);
}

CUresult fgw_serve_cuLibraryGetGlobal(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLibraryGetGlobal *fixed = request->fixed;
    struct fgv_reply_cuLibraryGetGlobal *answer = reply;
    struct fgv_reply_cuModuleGetGlobal_v2 found = {0};
    CUresult result = find_named(worker, request, FGV_HANDLE_LIBRARY, fixed->library, fixed->name_bytes, &found);
    answer->address = found.address;
    answer->bytes = found.bytes;
    answer->is_managed = found.is_managed;
    return result;
}

/* Bytes of a variable from `offset` on into the chunk, for a program that need not have a context yet. */
static CUresult read_variable(struct fgw_worker *worker, CUdeviceptr address, uint64_t bytes, uint64_t offset,
                              uint32_t chunk)
{
    const struct fgv_driver *driver = &worker->driver;
    uint8_t *to = fgw_arena_chunk(worker, chunk);
    if (!to || offset > bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t left = bytes - offset;
    const uint64_t some_bytes = left < worker->layout.chunk_bytes ? left : worker->layout.chunk_bytes;
    if (some_bytes == 0) {
        return CUDA_SUCCESS; /* it is asked where the variable is: not by the legacy stream, beside a capture perhaps */
    }
    CUresult result = driver->cuMemcpyDtoHAsync_v2 ? fgw_kernel_lend_context(worker) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemcpyDtoHAsync_v2(to, address + offset, some_bytes, NULL);
    }
    return result == CUDA_SUCCESS ? driver->cuStreamSynchronize(NULL) : result;
}

/* Asked for when a program starts, so that waiting here holds nothing up. */
CUresult fgw_serve_cuLibraryGetManaged(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLibraryGetManaged *fixed = request->fixed;
    struct fgv_reply_cuLibraryGetManaged *answer = reply;
    char name[FGV_MAX_NAME_BYTES + 1];
    void *library;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (!copy_name(request, fixed->name_bytes, name)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_LIBRARY, fixed->library, &library);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuLibraryGetManaged ? fgw_kernel_lend_context(worker) : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) { /* without a context it would be the first device's that is seen */
        result = worker->driver.cuLibraryGetManaged(&address, &bytes, library, name);
    }
    if (result == CUDA_SUCCESS) {
        fgw_bound_add_managed(worker, FGV_HANDLE_LIBRARY, fixed->library);
    }
    answer->address = address;
    answer->bytes = bytes;
    return result == CUDA_SUCCESS ? read_variable(worker, address, bytes, fixed->offset, fixed->chunk) : result;
}

/* Gives the numbers first, first + 1, ... to objects the driver listed; objects that got none are simply not known to
 * the guest. */
static uint32_t bind_run(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t first, void *const *natives,
                         uint32_t nr, enum fgv_handle_kind parent_kind, uint64_t parent)
{
    uint32_t bound = 0;
    while (bound < nr && natives[bound] &&
           fgw_worker_bind_under(worker, kind, first + bound, natives[bound], parent_kind, parent) == CUDA_SUCCESS) {
        bound++;
    }
    return bound;
}

CUresult fgw_serve_cuModuleEnumerateFunctions(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuModuleEnumerateFunctions *fixed = request->fixed;
    struct fgv_reply_cuModuleEnumerateFunctions *answer = reply;
    void *module;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_MODULE, fixed->module, &module);
    if (result != CUDA_SUCCESS || fixed->count == 0 || fixed->count > FGW_MAX_ENUMERATED ||
        !worker->driver.cuModuleEnumerateFunctions) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    void **natives = calloc(fixed->count, sizeof(*natives));
    if (!natives) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = worker->driver.cuModuleEnumerateFunctions((CUfunction *)natives, fixed->count, module);
    if (result == CUDA_SUCCESS) {
        answer->count = bind_run(worker, FGV_HANDLE_FUNCTION, fixed->first_handle, natives, fixed->count,
                                 FGV_HANDLE_MODULE, fixed->module);
    }
    free(natives);
    return result;
}

CUresult fgw_serve_cuLibraryEnumerateKernels(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLibraryEnumerateKernels *fixed = request->fixed;
    struct fgv_reply_cuLibraryEnumerateKernels *answer = reply;
    void *library;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_LIBRARY, fixed->library, &library);
    if (result != CUDA_SUCCESS || fixed->count == 0 || fixed->count > FGW_MAX_ENUMERATED ||
        !worker->driver.cuLibraryEnumerateKernels) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    void **natives = calloc(fixed->count, sizeof(*natives));
    if (!natives) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = worker->driver.cuLibraryEnumerateKernels((CUkernel *)natives, fixed->count, library);
    if (result == CUDA_SUCCESS) {
        answer->count = bind_run(worker, FGV_HANDLE_KERNEL, fixed->first_handle, natives, fixed->count,
                                 FGV_HANDLE_LIBRARY, fixed->library);
    }
    free(natives);
    return result;
}

/* Of a kernel, or of a function of a module: the handle says which. */
static CUresult name_of(struct fgw_worker *worker, uint64_t handle, const char **name)
{
    void *native;
    if (fgw_worker_find(worker, FGV_HANDLE_KERNEL, handle, &native) == CUDA_SUCCESS) {
        return worker->driver.cuKernelGetName ? worker->driver.cuKernelGetName(name, native) : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_FUNCTION, handle, &native);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return worker->driver.cuFuncGetName ? worker->driver.cuFuncGetName(name, native) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult fgw_serve_cuKernelGetName(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuKernelGetName *fixed = request->fixed;
    struct fgv_reply_cuKernelGetName *answer = reply;
    const char *name = NULL;
    uint8_t *to = fgw_arena_chunk(worker, fixed->chunk);
    CUresult result = to ? name_of(worker, fixed->kernel, &name) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && name) {
        uint32_t room = fixed->capacity < worker->layout.chunk_bytes ? fixed->capacity : worker->layout.chunk_bytes;
        size_t bytes = strlen(name);
        memcpy(to, name, bytes < room ? bytes : room);
        answer->bytes = (uint32_t)bytes;
    }
    return result;
}
