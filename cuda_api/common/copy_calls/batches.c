/* Boxes in batches: one after another, which is an order that a batch allows. */
#include <stdint.h>

#include "cuda_api/array_format.h"
#include "cuda_api/prototypes.h"
#include "ops.h"

/* Bytes of an element: the array's where there is one; two arrays must agree. 0: they do not, or one is none. */
static uint32_t element_bytes(const CUDA_MEMCPY3D_BATCH_OP *op)
{
    const CUmemcpy3DOperand *sides[] = {&op->src, &op->dst};
    uint32_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        CUDA_ARRAY3D_DESCRIPTOR descriptor;
        struct fgv_texel texel;
        if (sides[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) {
            continue;
        }
        if (cuArray3DGetDescriptor_v2(&descriptor, sides[i]->op.array.array) != CUDA_SUCCESS ||
            !fgv_texel_of(descriptor.Format, descriptor.NumChannels, &texel) || (bytes != 0 && bytes != texel.bytes)) {
            return 0;
        }
        bytes = texel.bytes;
    }
    return bytes != 0 ? bytes : 1;
}

/* Rows and layers of nothing are as long as what is copied of them. False: shorter than that. */
static bool side_of(const CUmemcpy3DOperand *operand, const CUextent3D *extent, uint32_t bytes,
                    struct fgv_copy_side *side)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        *side = (struct fgv_copy_side){.type = CU_MEMORYTYPE_ARRAY,
                                       .array = operand->op.array.array,
                                       .x_bytes = operand->op.array.offset.x * bytes,
                                       .y = operand->op.array.offset.y,
                                       .z = operand->op.array.offset.z};
        return true;
    }
    const size_t row = operand->op.ptr.rowLength, height = operand->op.ptr.layerHeight;
    *side = (struct fgv_copy_side){.type = CU_MEMORYTYPE_UNIFIED,
                                   .device = operand->op.ptr.ptr,
                                   .pitch_bytes = (row != 0 ? row : extent->width) * bytes,
                                   .height = height != 0 ? height : extent->height};
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && (row == 0 || row >= extent->width) &&
           (height == 0 || height >= extent->height);
}

static CUresult copy(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    const uint32_t bytes = element_bytes(op);
    const struct fgv_copy_size size = {
        .width_bytes = op->extent.width * bytes, .height = op->extent.height, .depth = op->extent.depth};
    struct fgv_copy_side to, from;
    if (bytes == 0 || op->extent.width == 0 || op->extent.height == 0 || op->extent.depth == 0 ||
        op->extent.width > SIZE_MAX / bytes || op->srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        op->srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY || !side_of(&op->dst, &op->extent, bytes, &to) ||
        !side_of(&op->src, &op->extent, bytes, &from)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgv_copy_ops_get()->box(&to, &from, &size, stream, false);
    if (result == CUDA_SUCCESS && op->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
        result = cuStreamSynchronize(stream); /* the source may be gone when the call has returned */
    }
    return result;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
                              CUstream hStream)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;
    if (failIdx) {
        *failIdx = SIZE_MAX; /* no single copy is to blame */
    }
    if (numOps == 0 || !opList || flags != 0 || !hStream || hStream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (i = 0; i < numOps && result == CUDA_SUCCESS; i++) {
        result = copy(&opList[i], hStream);
    }
    if (result != CUDA_SUCCESS && failIdx) {
        *failIdx = i - 1;
    }
    return result;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                 CUstream hStream)
{
    return cuMemcpy3DBatchAsync(numOps, opList, NULL, flags, hStream);
}
