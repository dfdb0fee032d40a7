/* Which calls are work that may use any memory of the program's, and not only what they name. */
#ifndef FRONTEND_GUEST_WORK_H
#define FRONTEND_GUEST_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/wire.h"

/* Copies between the device and other memory are not: who makes them knows both sides. */
static inline bool fgv_call_is_work(uint16_t call)
{
    if (call >= FGV_CALL_cuMemsetD8_v2 && call <= FGV_CALL_cuMemsetD2D32Async) {
        return true;
    }
    switch (call) {
    case FGV_CALL_cuLaunchKernel:
    case FGV_CALL_cuGraphLaunch:
    case FGV_CALL_cuMemcpyDtoD_v2:
    case FGV_CALL_cuMemcpyDtoDAsync_v2:
    case FGV_CALL_cuMemcpyPeer:
    case FGV_CALL_cuMemcpyPeerAsync:
    case FGV_CALL_cuMemcpy3DAsync_v2:
    case FGV_CALL_cuStreamWriteValue32_v2:
    case FGV_CALL_cuStreamWriteValue64_v2:
    case FGV_CALL_cuStreamBatchMemOp_v2:
        return true;
    default:
        return false;
    }
}

#endif
