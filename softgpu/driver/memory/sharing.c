/* Sharing events between processes. */
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
