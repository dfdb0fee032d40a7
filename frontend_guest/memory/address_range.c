/* Ranges of addresses for other devices: refused, as by a driver of a system without it. The device attributes say so.
 */
#include "cuda_api/prototypes.h"
#include "region/client.h"

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
                                       unsigned long long flags)
{
    CUresult result = fgv_client_is_open();
    (void)dptr;
    (void)handleType;
    (void)flags;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return !handle || size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}
