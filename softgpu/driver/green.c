/* Green contexts: parts of a device, as separate contexts. This one has no parts. */
#include "cuda_api/prototypes.h"
#include "driver.h"

static CUresult refuse(void)
{
    CUresult result = sgp_enter_driver();

    return result ? result : sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
}

SGP_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    (void)phCtx;
    (void)desc;
    (void)dev;
    (void)flags;
    return refuse();
}

SGP_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    (void)hCtx;
    return refuse();
}

SGP_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    (void)pContext;
    (void)hCtx;
    return refuse();
}

SGP_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    (void)device;
    (void)resource;
    (void)type;
    return refuse();
}

SGP_EXPORT CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    (void)hCtx;
    (void)resource;
    (void)type;
    return refuse();
}

SGP_EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    (void)hCtx;
    (void)resource;
    (void)type;
    return refuse();
}

SGP_EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *parts, unsigned int *nbGroups,
                                                const CUdevResource *input, CUdevResource *remaining,
                                                unsigned int useFlags, unsigned int minCount)
{
    (void)parts;
    (void)nbGroups;
    (void)input;
    (void)remaining;
    (void)useFlags;
    (void)minCount;
    return refuse();
}

SGP_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                              unsigned int nbResources)
{
    (void)phDesc;
    (void)resources;
    (void)nbResources;
    return refuse();
}

SGP_EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}

SGP_EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}

SGP_EXPORT CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    (void)phStream;
    (void)greenCtx;
    (void)flags;
    (void)priority;
    return refuse();
}

SGP_EXPORT CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    (void)greenCtx;
    (void)greenCtxId;
    return refuse();
}

SGP_EXPORT CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}

SGP_EXPORT CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}
