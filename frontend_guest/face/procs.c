/* cuGetProcAddress: the generated table of names and versions, and a count of what was asked for in vain. */
#include "cuda_api/procs.h"

#include <stddef.h>

#include "base/log.h"
#include "base/trace.h"
#include "cuda_api/prototypes.h"
#include "cuda_api/refusals.h"

static CUresult find(const char *symbol, void **pfn, int version, cuuint64_t flags, int *status)
{
    if (!symbol || !pfn) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if ((flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgv_proc proc = fgv_proc_find(symbol, version, flags, status);
    if (proc) {
        proc = fgv_trace_proc(proc);
    } else {
        proc = fgv_refusal_find(symbol, version, flags, status);
    }
    *pfn = (void *)proc;
    if (!proc) {
        fgv_trace_missing(symbol, version, flags);
        fgv_count(FGV_COUNT_REFUSED_LOOKUPS, 1);
        fgv_log_name("no such call", symbol);
    }
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    int status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = find(symbol, pfn, cudaVersion, flags, &status);
    return result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    int status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = find(symbol, pfn, cudaVersion, flags, &status);
    if (result == CUDA_SUCCESS && symbolStatus) {
        *symbolStatus = (CUdriverProcAddressQueryResult)status;
    }
    return result;
}

/* What a program compiled for the per-thread default stream calls: without a flag it means those twins. CUDA gives it
 * to nobody by cuGetProcAddress, so the table of calls has it not. */
__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **pfn,
                                                                         int cudaVersion, cuuint64_t flags,
                                                                         CUdriverProcAddressQueryResult *symbolStatus);
CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *symbolStatus)
{
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT) {
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    }
    return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
}
