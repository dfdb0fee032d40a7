/* Green contexts: parts of a device, as separate contexts. A vGPU is a share of time and has no parts, so all of it is
 * refused. */
#include "call.h"
#include "client.h"
#include "cuda_api/prototypes.h"

static CUresult refuse(void)
{
    CUresult result = fgv_client_is_open();
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    (void)phCtx;
    (void)desc;
    (void)dev;
    (void)flags;
    return refuse();
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    (void)hCtx;
    return refuse();
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    (void)pContext;
    (void)hCtx;
    return refuse();
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    (void)device;
    (void)resource;
    (void)type;
    return refuse();
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    (void)hCtx;
    (void)resource;
    (void)type;
    return refuse();
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    (void)hCtx;
    (void)resource;
    (void)type;
    return refuse();
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
    return refuse();
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
    (void)phDesc;
    (void)resources;
    (void)nbResources;
    return refuse();
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    (void)phStream;
    (void)greenCtx;
    (void)flags;
    (void)priority;
    return refuse();
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    (void)greenCtx;
    (void)greenCtxId;
    return refuse();
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    (void)hCtx;
    (void)hEvent;
    return refuse();
}
