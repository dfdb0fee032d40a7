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

/* Two small numbers side by side are no address. */
static bool is_in_one(struct fgw_worker *worker, const struct fgw_handle *handle, uint32_t at)
{
    size_t offset, bytes;
    for (uint32_t i = 0; i < FGW_MAX_PARAMETERS; i++) {
        if (ask_parameter(worker, handle, i, &offset, &bytes) != CUDA_SUCCESS) {
            return false;
        }
        if (at >= offset && at - offset < bytes) {
            return bytes - (at - offset) >= sizeof(uint64_t);
        }
    }
    return false;
}

void fgw_kernel_lead(struct fgw_worker *worker, const struct fgw_handle *handle, uint8_t *parameters, uint32_t bytes)
{
    for (uint32_t at = 0; worker->told.nr != 0 && at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, parameters + at, sizeof(word));
        if (fgw_told_find(&worker->told, word) && is_in_one(worker, handle, at)) {
            word = fgw_told_pass(worker, word);
            memcpy(parameters + at, &word, sizeof(word));
        }
    }
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
