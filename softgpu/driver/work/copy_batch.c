/* Copies in batches: one after another, which is an order that a batch allows. */
#include "base/driver.h"
#include "cuda_api/prototypes.h"

static bool is_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                     const CUmemcpyAttributes *attrs, const size_t *firsts, size_t nr)
{
    if (!dsts || !srcs || !sizes || !count || !attrs || !firsts || !nr || nr > count || firsts[0] != 0) {
        return false;
    }
    for (size_t i = 0; i < nr; i++) {
        if ((i && (firsts[i] <= firsts[i - 1] || firsts[i] >= count)) ||
            attrs[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attrs[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) {
            return false;
        }
    }
    return true;
}

/* Whether a source may be gone when the call has returned. */
static bool reads_at_once(const CUmemcpyAttributes *attrs, size_t nr)
{
    for (size_t i = 0; i < nr; i++) {
        if (attrs[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
            return true;
        }
    }
    return false;
}

SGP_EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                                       CUstream hStream)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;

    if (failIdx) {
        *failIdx = SIZE_MAX; /* no single copy is to blame */
    }
    if (!is_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs) || !hStream || hStream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (i = 0; i < count && !result; i++) {
        result = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream);
    }
    if (result && failIdx) {
        *failIdx = i - 1;
    }
    return result || !reads_at_once(attrs, numAttrs) ? result : cuStreamSynchronize(hStream);
}

SGP_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                          CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                          CUstream hStream)
{
    return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}
