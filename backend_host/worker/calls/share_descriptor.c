/*
 * Physical memory that programs of one vGPU share by descriptors. What a program passes on is a file of the guest's own
 * with a key in it; the memory's descriptor goes by the shelf, as that of other memory does (sharing.c).
 */
#include <unistd.h>

#include "calls/exports.h"
#include "calls/extent_files.h"
#include "calls/memory.h"
#include "calls/physical.h"
#include "calls/sharing.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "page/account.h"
#include "track/state.h"

static const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/* Of one that is an extent the descriptor may be made as that of other memory is, of which nobody else may be at work.
 */
static CUresult open_file(struct fgw_worker *worker, struct fgw_physical *physical, int *file)
{
    int files[FGW_MAX_SHARED_FILES];
    uint32_t nr_files;
    if (physical->extent == 0) {
        const CUresult result = fgw_physical_hold(worker, physical);
        return result == CUDA_SUCCESS ? worker->driver.cuMemExportToShareableHandle(file, physical->native, type, 0)
                                      : result;
    }
    if (worker->track->busy) {
        return CUDA_ERROR_NOT_READY;
    }
    const CUresult result = fgw_extent_files_open(worker, physical->extent, physical->bytes, files, &nr_files);
    *file = result == CUDA_SUCCESS ? files[0] : -1; /* it is one extent */
    return result;
}

CUresult fgw_serve_physical_export(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_physical_export *fixed = request->fixed;
    struct fgv_reply_physical_export *answer = reply;
    struct fgw_physical *physical = fgw_physical_find(worker, fixed->handle);
    struct fgw_key key;
    int file = -1;
    if (!physical || physical->nr_retained == 0 || physical->is_shareable == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->driver.cuMemExportToShareableHandle) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    if (!fgw_exports_find(worker, fixed->handle, &key)) {
        result = fgw_exports_begin(worker);
        if (result == CUDA_SUCCESS) {
            result = open_file(worker, physical, &file);
        }
        if (result == CUDA_SUCCESS) {
            result = fgw_exports_put(worker, fixed->handle, physical->bytes, &file, 1, &key);
            close(file);
        }
    }
    if (result == CUDA_SUCCESS) {
        *answer = (struct fgv_reply_physical_export){.key = {key.words[0], key.words[1]}};
    }
    return result;
}

/* The worker that put it there may be a hostile guest's. What it says is the size is what is counted; where the memory
 * has another one, mapping it fails. */
static CUresult import(struct fgw_worker *worker, uint64_t number)
{
    const struct fgw_found *found = &worker->daemon.found;
    CUmemGenericAllocationHandle native;
    if (found->nr_files != 1 || found->bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!worker->driver.cuMemImportFromShareableHandle || !worker->driver.cuMemRelease) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_worker_can_bind(worker, FGV_HANDLE_ALLOCATION, number);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgw_memory_take(worker, found->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = worker->driver.cuMemImportFromShareableHandle(&native, (void *)(uintptr_t)found->files[0], type);
    if (result == CUDA_SUCCESS) {
        result = fgw_physical_enter(worker, number, native, found->bytes, found->key.words[0]);
        if (result != CUDA_SUCCESS) {
            worker->driver.cuMemRelease(native);
        }
    }
    if (result != CUDA_SUCCESS) {
        fgw_quota_give(&worker->grantee, found->bytes);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult fgw_serve_physical_import(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_physical_import *fixed = request->fixed;
    (void)reply;
    const struct fgw_key key = {{fixed->key[0], fixed->key[1]}};
    CUresult result = fgw_sharing_find(worker, &key);
    if (result == CUDA_SUCCESS) {
        result = import(worker, fixed->handle);
    }
    if (result != CUDA_ERROR_NOT_READY) {
        fgw_sharing_found(worker);
    }
    return result;
}
