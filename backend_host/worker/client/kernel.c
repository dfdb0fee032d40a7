#include "client/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "client/current.h"
#include "client/state.h"

#define FGW_MAX_PARAMETERS 8192u

static CUresult ask_parameter(struct fgw_worker *worker, const struct fgw_handle *handle, size_t index, size_t *offset,
                              size_t *bytes)
{
    if (handle->kind == FGV_HANDLE_KERNEL) {
        return worker->driver.cuKernelGetParamInfo
                   ? worker->driver.cuKernelGetParamInfo(handle->native, index, offset, bytes)
                   : CUDA_ERROR_NOT_SUPPORTED;
    }
    return worker->driver.cuFuncGetParamInfo ? worker->driver.cuFuncGetParamInfo(handle->native, index, offset, bytes)
                                             : CUDA_ERROR_NOT_SUPPORTED;
}

/* NVIDIA's driver answers no question about a kernel while no context is current, and CUDA lets a program take kernels
 * from a library before it has one: it is lent the primary context, which costs nothing, being warm. */
CUresult fgw_kernel_lend_context(struct fgw_worker *worker)
{
    if (worker->current) {
        return CUDA_SUCCESS;
    }
    const CUresult result = fgw_context_warm(worker);
    return result == CUDA_SUCCESS ? worker->driver.cuCtxSetCurrent(worker->warm) : result;
}

/* An error that is not the end of the parameters is one: a guest that took it for the end would pack none. */
CUresult fgw_kernel_walk(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_kernel *kernel,
                         uint8_t *told, uint32_t room)
{
    *kernel = (struct fgw_kernel){0};
    CUresult result = fgw_kernel_lend_context(worker);
    for (uint32_t i = 0; i < FGW_MAX_PARAMETERS && result == CUDA_SUCCESS; i++) {
        size_t offset = 0;
        size_t bytes = 0;
        result = ask_parameter(worker, handle, i, &offset, &bytes);
        if (result != CUDA_SUCCESS) {
            break;
        }
        const struct fgv_parameter parameter = {.offset_bytes = (uint32_t)offset, .bytes = (uint32_t)bytes};
        if (i < room) {
            memcpy(told + i * sizeof(parameter), &parameter, sizeof(parameter));
        }
        kernel->nr_parameters = i + 1;
        if (offset + bytes > kernel->parameter_bytes) {
            kernel->parameter_bytes = (uint32_t)(offset + bytes);
        }
    }
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

static bool is_told(struct fgw_worker *worker, const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return fgw_told_find(&worker->told, word) != NULL;
}

/* Most launches have none, and the driver is not asked. */
static bool has_told(struct fgw_worker *worker, const uint8_t *parameters, uint32_t bytes)
{
    for (uint32_t at = 0; worker->told.nr != 0 && at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        if (is_told(worker, parameters + at)) {
            return true;
        }
    }
    return false;
}

static void lead_one(struct fgw_worker *worker, uint8_t *parameters, size_t offset, size_t end)
{
    const size_t first = (offset + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
    for (size_t at = first; at + sizeof(uint64_t) <= end; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, parameters + at, sizeof(word));
        word = fgw_told_pass(worker, word);
        memcpy(parameters + at, &word, sizeof(word));
    }
}

/* Two small numbers side by side are no address. */
CUresult fgw_kernel_lead(struct fgw_worker *worker, const struct fgw_handle *handle, uint8_t *parameters,
                         uint32_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    const uint32_t nr = has_told(worker, parameters, bytes) ? FGW_MAX_PARAMETERS : 0;
    for (uint32_t i = 0; i < nr; i++) {
        size_t offset = 0, parameter_bytes = 0;
        result = ask_parameter(worker, handle, i, &offset, &parameter_bytes);
        if (result != CUDA_SUCCESS) {
            break;
        }
        const size_t end = offset + parameter_bytes;
        lead_one(worker, parameters, offset, end < bytes ? end : bytes);
    }
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

static uint32_t ask_local_bytes(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    const struct fgv_driver *driver = &worker->driver;
    int bytes = 0;
    if (handle->kind == FGV_HANDLE_KERNEL && driver->cuKernelGetAttribute) {
        driver->cuKernelGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, handle->native, worker->device);
    } else if (handle->kind == FGV_HANDLE_FUNCTION && driver->cuFuncGetAttribute) {
        driver->cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, handle->native);
    }
    return bytes > 0 ? (uint32_t)bytes : 0;
}

CUresult fgw_kernel_layout(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_kernel **layout)
{
    struct fgw_kernel *kernel = handle->object;
    if (!kernel) {
        kernel = malloc(sizeof(*kernel));
        CUresult result = kernel ? fgw_kernel_walk(worker, handle, kernel, NULL, 0) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result != CUDA_SUCCESS) {
            free(kernel);
            return result;
        }
        kernel->local_bytes = ask_local_bytes(worker, handle);
        fgw_handle_hang(worker, handle->kind, handle->number, kernel);
    }
    *layout = kernel;
    return CUDA_SUCCESS;
}

CUresult fgw_variable_find(struct fgw_worker *worker, enum fgv_handle_kind owner_kind, void *owner, const char *name,
                           CUdeviceptr *address, size_t *bytes)
{
    const struct fgv_driver *driver = &worker->driver;
    if (owner_kind == FGV_HANDLE_LIBRARY) {
        return driver->cuLibraryGetGlobal ? driver->cuLibraryGetGlobal(address, bytes, owner, name)
                                          : CUDA_ERROR_NOT_SUPPORTED;
    }
    return driver->cuModuleGetGlobal_v2 ? driver->cuModuleGetGlobal_v2(address, bytes, owner, name)
                                        : CUDA_ERROR_NOT_SUPPORTED;
}
