/* Allocating device memory: small pieces out of slabs, all else by the host. */
#include "call/call.h"
#include "call/device.h"
#include "context/capture_rules.h"
#include "context/context.h"
#include "cuda_api/prototypes.h"
#include "memory/kept.h"
#include "memory/ranges.h"
#include "memory/slabs.h"
#include "memory/span.h"

static CUresult ask_host(uint64_t *address, size_t bytes)
{
    struct fgv_call call;
    struct fgv_request_cuMemAlloc_v2 *request = fgv_call_begin(&call, FGV_CALL_cuMemAlloc_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->bytesize = bytes;
    struct fgv_reply_cuMemAlloc_v2 reply;
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        *address = reply.dptr;
    }
    return result;
}

/* `place`: in a slab; 0: it is the host's. */
static CUresult take_device(uint64_t *address, size_t bytes, uint64_t *place)
{
    *place = 0;
    CUresult opened = fgv_span_open();
    if (opened != CUDA_SUCCESS) {
        return opened;
    }
    if (bytes != 0 && bytes <= FGV_SLAB_MOST_BYTES) {
        CUresult result = fgv_call_healthy();
        result = result == CUDA_SUCCESS ? fgv_slab_allocate(bytes, address, place) : result;
        if (result != CUDA_ERROR_OUT_OF_MEMORY) {
            return result;
        }
    }
    CUresult result = ask_host(address, bytes); /* there may be less than a slab left, and enough */
    return result == CUDA_ERROR_OUT_OF_MEMORY && fgv_kept_give_back() ? ask_host(address, bytes) : result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    uint64_t address, place;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS && !dptr) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = take_device(&address, bytesize, &place);
    }
    if (result == CUDA_SUCCESS) {
        *dptr = address;
        fgv_memory_enter(address, bytesize, FGV_MEMORY_DEVICE, 0, place);
    }
    return result;
}

/* An empty slab is free memory. */
CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    fgv_slab_trim();
    struct fgv_call call;
    if (!fgv_call_begin(&call, FGV_CALL_cuMemGetInfo_v2, 0, 0)) {
        return call.error;
    }
    struct fgv_reply_cuMemGetInfo_v2 reply;
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS && free) {
        *free = reply.free;
    }
    if (result == CUDA_SUCCESS && total) {
        *total = reply.total;
    }
    return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    struct fgv_context *context;
    size_t with_padding, bytes;
    if (!pPitch || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgv_context_current(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const size_t row_bytes =
        (size_t)fgv_device_facts(context->ordinal)->attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
    if (__builtin_add_overflow(WidthInBytes, row_bytes - 1, &with_padding) ||
        __builtin_mul_overflow(with_padding / row_bytes * row_bytes, Height, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = cuMemAlloc_v2(dptr, bytes);
    if (result == CUDA_SUCCESS) {
        *pPitch = with_padding / row_bytes * row_bytes;
    }
    return result;
}
