/* Sharing memory and events between processes: this driver's memory is its process's alone. */
#include "base/driver.h"
#include "cuda_api/prototypes.h"

static CUresult refuse(bool is_argument_missing)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    return sgp_leave(is_argument_missing ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED);
}

SGP_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    return refuse(!pHandle || !event);
}

SGP_EXPORT CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    (void)handle;
    return refuse(!phEvent);
}

SGP_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    (void)dptr;
    return refuse(!pHandle);
}

SGP_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    (void)handle;
    (void)Flags;
    return refuse(!pdptr);
}

SGP_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

SGP_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    (void)dptr;
    return refuse(false);
}

SGP_EXPORT CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType handleType, unsigned long long flags)
{
    (void)handle;
    (void)handleType;
    return refuse(!shareableHandle || flags);
}

SGP_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                                   CUmemAllocationHandleType shHandleType)
{
    (void)osHandle;
    (void)shHandleType;
    return refuse(!handle);
}

SGP_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                                  CUmemRangeHandleType handleType, unsigned long long flags)
{
    (void)dptr;
    (void)handleType;
    (void)flags;
    return refuse(!handle || !size);
}

SGP_EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                                     CUmemAllocationHandleType handleType, unsigned long long flags)
{
    (void)handleType;
    return refuse(!handle_out || !pool || flags);
}

SGP_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                       CUmemAllocationHandleType handleType, unsigned long long flags)
{
    (void)handle;
    (void)handleType;
    return refuse(!pool_out || flags);
}

SGP_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    return refuse(!shareData_out || !ptr);
}

SGP_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
    return refuse(!ptr_out || !pool || !shareData);
}
