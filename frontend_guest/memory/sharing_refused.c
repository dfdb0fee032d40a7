/* Sharing pools and ranges of addresses with other processes: refused, as by a driver of a system without it. The
 * device attributes say so. */
#include <stdbool.h>

#include "cuda_api/prototypes.h"
#include "region/client.h"

static CUresult refuse(bool is_argument_bad)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return is_argument_bad ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
                                       unsigned long long flags)
{
    (void)dptr;
    (void)handleType;
    (void)flags;
    return refuse(!handle || size == 0);
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                          unsigned long long flags)
{
    (void)handleType;
    return refuse(!handle_out || !pool || flags != 0);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    (void)handle;
    (void)handleType;
    return refuse(!pool_out || flags != 0);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    return refuse(!shareData_out || ptr == 0);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
    return refuse(!ptr_out || !pool || !shareData);
}
