/* What streams say of themselves, and what of it can be set. */
#include "cuda_api/prototypes.h"
#include "stream/stream.h"

SGP_EXPORT CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), priority);

    if (result) {
        return result;
    }
    *priority = stream->priority;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), flags);

    if (result) {
        return result;
    }
    *flags = stream->flags;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), streamId);

    if (result) {
        return result;
    }
    *streamId = stream->id;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), pctx);

    if (result) {
        return result;
    }
    *pctx = stream->object.context;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    if (!pGreenCtx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pGreenCtx = NULL;
    return cuStreamGetCtx(hStream, pCtx);
}

SGP_EXPORT CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), device);

    if (result) {
        return result;
    }
    *device = stream->object.context->device->ordinal;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), value_out);

    if (result) {
        return result;
    }
    switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value_out->syncPolicy = stream->sync_policy;
        return sgp_leave(CUDA_SUCCESS);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value_out->priority = stream->priority;
        return sgp_leave(CUDA_SUCCESS);
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value_out->accessPolicyWindow =
            (CUaccessPolicyWindow){.hitProp = CU_ACCESS_PROPERTY_NORMAL, .missProp = CU_ACCESS_PROPERTY_NORMAL};
        return sgp_leave(CUDA_SUCCESS);
    default:
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
}

SGP_EXPORT CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    struct CUstream_st *stream;
    CUresult result = sgp_with_argument(sgp_enter_stream(hStream, &stream), value);

    if (result) {
        return result;
    }
    switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        if (value->syncPolicy < CU_SYNC_POLICY_AUTO || value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
        stream->sync_policy = value->syncPolicy;
        return sgp_leave(CUDA_SUCCESS);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        if (value->priority > SGP_LEAST_PRIORITY || value->priority < SGP_GREATEST_PRIORITY) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
        stream->priority = value->priority;
        return sgp_leave(CUDA_SUCCESS);
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: /* the device says that it has no such cache:
                                                      MAX_ACCESS_POLICY_WINDOW_SIZE is 0 */
        return sgp_leave(value->accessPolicyWindow.num_bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    default:
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
}

SGP_EXPORT CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    struct CUstream_st *from, *to;
    CUresult result = sgp_enter_stream(src, &from);

    if (result) {
        return result;
    }
    result = sgp_stream_resolve(from->object.context, dst, &to);
    if (!result) {
        to->sync_policy = from->sync_policy;
    }
    return sgp_leave(result);
}
