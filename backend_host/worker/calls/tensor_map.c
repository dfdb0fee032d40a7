/* Tensor maps, which the driver encodes from plain numbers. What it does not like it says; only lengths are ours to
 * check. */
#include <string.h>

#include "client/service.h"
#include "client/state.h"

/* A kernel gets the map as one of its parameters, in which nobody finds the address. */
static void *address_in(struct fgw_worker *worker, uint64_t address)
{
    return (void *)(uintptr_t)fgw_told_pass(worker, address);
}

static bool is_rank(uint32_t rank, uint32_t least)
{
    return rank >= least && rank <= FGV_MAX_TENSOR_RANK;
}

CUresult fgw_serve_cuTensorMapEncodeTiled(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuTensorMapEncodeTiled *fixed = request->fixed;
    struct fgv_reply_cuTensorMapEncodeTiled *answer = reply;
    _Alignas(128) CUtensorMap map;
    if (!worker->driver.cuTensorMapEncodeTiled) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!is_rank(fixed->rank, 1)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = worker->driver.cuTensorMapEncodeTiled(
        &map, (CUtensorMapDataType)fixed->data_type, fixed->rank, address_in(worker, fixed->address), fixed->dimensions,
        fixed->strides, fixed->box, fixed->element_strides, (CUtensorMapInterleave)fixed->interleave,
        (CUtensorMapSwizzle)fixed->swizzle, (CUtensorMapL2promotion)fixed->l2_promotion,
        (CUtensorMapFloatOOBfill)fixed->oob_fill);
    if (result == CUDA_SUCCESS) {
        memcpy(answer->map, &map, sizeof(answer->map));
    }
    return result;
}

CUresult fgw_serve_cuTensorMapEncodeIm2col(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuTensorMapEncodeIm2col *fixed = request->fixed;
    struct fgv_reply_cuTensorMapEncodeIm2col *answer = reply;
    _Alignas(128) CUtensorMap map;
    if (!worker->driver.cuTensorMapEncodeIm2col) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!is_rank(fixed->rank, 3)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = worker->driver.cuTensorMapEncodeIm2col(
        &map, (CUtensorMapDataType)fixed->data_type, fixed->rank, address_in(worker, fixed->address), fixed->dimensions,
        fixed->strides, fixed->lower_corner, fixed->upper_corner, fixed->channels, fixed->pixels,
        fixed->element_strides, (CUtensorMapInterleave)fixed->interleave, (CUtensorMapSwizzle)fixed->swizzle,
        (CUtensorMapL2promotion)fixed->l2_promotion, (CUtensorMapFloatOOBfill)fixed->oob_fill);
    if (result == CUDA_SUCCESS) {
        memcpy(answer->map, &map, sizeof(answer->map));
    }
    return result;
}

CUresult fgw_serve_cuTensorMapEncodeIm2colWide(struct fgw_worker *worker, const struct fgw_request *request,
                                               void *reply)
{
    const struct fgv_request_cuTensorMapEncodeIm2colWide *fixed = request->fixed;
    struct fgv_reply_cuTensorMapEncodeIm2colWide *answer = reply;
    _Alignas(128) CUtensorMap map;
    if (!worker->driver.cuTensorMapEncodeIm2colWide) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!is_rank(fixed->rank, 3)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = worker->driver.cuTensorMapEncodeIm2colWide(
        &map, (CUtensorMapDataType)fixed->data_type, fixed->rank, address_in(worker, fixed->address), fixed->dimensions,
        fixed->strides, fixed->lower_width, fixed->upper_width, fixed->channels, fixed->pixels, fixed->element_strides,
        (CUtensorMapInterleave)fixed->interleave, (CUtensorMapIm2ColWideMode)fixed->mode,
        (CUtensorMapSwizzle)fixed->swizzle, (CUtensorMapL2promotion)fixed->l2_promotion,
        (CUtensorMapFloatOOBfill)fixed->oob_fill);
    if (result == CUDA_SUCCESS) {
        memcpy(answer->map, &map, sizeof(answer->map));
    }
    return result;
}

CUresult fgw_serve_cuTensorMapReplaceAddress(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuTensorMapReplaceAddress *fixed = request->fixed;
    struct fgv_reply_cuTensorMapReplaceAddress *answer = reply;
    _Alignas(128) CUtensorMap map;
    if (!worker->driver.cuTensorMapReplaceAddress) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    memcpy(&map, fixed->map, sizeof(map));
    CUresult result = worker->driver.cuTensorMapReplaceAddress(&map, address_in(worker, fixed->address));
    if (result == CUDA_SUCCESS) {
        memcpy(answer->map, &map, sizeof(answer->map));
    }
    return result;
}
