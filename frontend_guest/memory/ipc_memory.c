/* Memory of cuMemAlloc passed on by handles: a part of what the host knows by a key (sharing.h). Of small memory the
 * whole slab is shared, as drivers do. */
#include <string.h>

#include "call/call.h"
#include "context/capture_rules.h"
#include "cuda_api/prototypes.h"
#include "memory/ranges.h"
#include "memory/sharing.h"

#define MAGIC UINT64_C(0x6d656d6370697646)

struct handle {
    uint64_t magic;
    struct fgv_shared_part part;
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle is what CUDA has room for");

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct fgv_range range;
    struct handle handle = {.magic = MAGIC};
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pHandle || !fgv_memory_find(dptr, &range) || range.kind != FGV_MEMORY_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    result = fgv_sharing_export(&range, &handle.part);
    if (result == CUDA_SUCCESS) {
        memset(pHandle, 0, sizeof(*pHandle));
        memcpy(pHandle, &handle, sizeof(handle));
    }
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct handle given;
    uint64_t address = 0;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(&given, &handle, sizeof(given));
    if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || given.magic != MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    result = fgv_sharing_open(&given.part, 0, &address);
    if (result == CUDA_SUCCESS) {
        *pdptr = address;
    }
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_memory_find(dptr, &range) || range.kind != FGV_MEMORY_IMPORTED || range.address != dptr ||
        range.owner != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return fgv_sharing_close(&range);
}
