/* A launch as its request describes it, checked, ready for the driver. */
#ifndef BACKEND_HOST_LAUNCH_H
#define BACKEND_HOST_LAUNCH_H

#include "client/handles.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"

#define FGW_DESCRIPTOR_BYTES 64u /* room for what a variant of the kernel is told beside its parameters */

struct fgw_launch {
    struct fgw_handle handle;
    struct fgw_kernel *kernel; /* what hangs on it */
    CUlaunchConfig config;
    size_t parameter_bytes;
    CUlaunchAttribute attributes[FGV_MAX_LAUNCH_ATTRIBUTES + 1];
    _Alignas(64) uint8_t parameters[FGW_MAX_PARAMETER_BYTES + FGW_DESCRIPTOR_BYTES];
};

CUresult fgw_attributes_translate(struct fgw_worker *worker, CUlaunchAttribute *attributes, uint32_t nr);
/* Reads the payload once more each time. An error is what the launch gives. */
CUresult fgw_launch_read(struct fgw_worker *worker, const struct fgw_request *request, struct fgw_launch *launch);
/* `function` is the kernel's own, or one of the same parameters and more behind them. */
CUresult fgw_launch_submit(struct fgw_worker *worker, struct fgw_launch *launch, CUfunction function);

#endif
