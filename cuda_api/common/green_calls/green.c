/*
 * Green contexts: parts of a device, as separate contexts. A vGPU is a share of time and the software device has no
 * parts, so all of it is refused, in both of our libcuda.so.1 libraries: libraries look the names up.
 */
#include "cuda_api/green_calls.h"
#include "cuda_api/prototypes.h"

static const struct fgv_green_ops *ops;

void fgv_green_set_ops(const struct fgv_green_ops *lent)
{
    ops = lent;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    (void)phCtx;
    (void)desc;
    (void)dev;
    (void)flags;
    return ops->refuse();
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    (void)hCtx;
    return ops->refuse();
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    (void)pContext;
    (void)hCtx;
    return ops->refuse();
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    (void)device;
    (void)resource;
    (void)type;
    return ops->refuse();
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    (void)hCtx;
    (void)resource;
    (void)type;
    return ops->refuse();
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    (void)hCtx;
    (void)resource;
    (void)type;
    return ops->refuse();
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *parts, unsigned int *nbGroups, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
    (void)parts;
    (void)nbGroups;
    (void)input;
    (void)remaining;
    (void)useFlags;
    (void)minCount;
    return ops->refuse();
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
    (void)phDesc;
    (void)resources;
    (void)nbResources;
    return ops->refuse();
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return ops->refuse();
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return ops->refuse();
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    (void)phStream;
    (void)greenCtx;
    (void)flags;
    (void)priority;
    return ops->refuse();
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    (void)greenCtx;
    (void)greenCtxId;
    return ops->refuse();
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return ops->refuse();
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return ops->refuse();
}
