/* Memory for programs: device memory, pinned host memory, registered host memory. Where it lies is memory_map.c. */

#include <sys/mman.h>

#include "base/mappings.h"
#include "base/reach.h"
#include "base/state.h"
#include "base/view.h"
#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/capture.h"
#include "stream/queue.h"

#define PITCH_BYTES    512u
#define ALL_HOST_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define ALL_REGISTER_FLAGS                                                                                             \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |                        \
     CU_MEMHOSTREGISTER_READ_ONLY)

/* How entering went, for a call that not every capture allows beside it. */
static CUresult beside_captures(CUresult entered)
{
    CUresult result = entered ? entered : sgp_capture_forbid_unsafe();

    return result && !entered ? sgp_leave(result) : result;
}

SGP_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct CUctx_st *context;
    void *address = NULL;
    CUresult result = beside_captures(sgp_enter(&context));

    if (result) {
        return result;
    }
    if (!dptr || !bytesize) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_memory_new(context, bytesize, SGP_MEMORY_DEVICE, &address);
    if (!result) {
        *dptr = (CUdeviceptr)(uintptr_t)address;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                       unsigned int ElementSizeBytes)
{
    size_t pitch = (WidthInBytes + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;
    CUresult result;

    if (!pPitch || !WidthInBytes || !Height || pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = cuMemAlloc_v2(dptr, bytes);
    if (!result) {
        *pPitch = pitch;
    }
    return result;
}

/* What cuMemFree takes, by its first address. */
static bool is_freeable(const struct sgp_allocation *allocation, CUdeviceptr address)
{
    if (!allocation || allocation->start != address || allocation->freed_in || allocation->is_kept) {
        return false;
    }
    if (allocation->owner && allocation->owner->is_live) {
        return allocation->owner->is_live(allocation);
    }
    return allocation->kind == SGP_MEMORY_DEVICE || allocation->kind == SGP_MEMORY_MANAGED ||
           allocation->kind == SGP_MEMORY_POOLED;
}

/* For what ends an allocation: where no context is current, the owner's will do, and for NULL none is needed. */
static CUresult enter_owner(uintptr_t address, CUresult not_found)
{
    const struct sgp_allocation *allocation;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (sgp_context_current()) {
        struct CUctx_st *context;

        sgp_unlock();
        return sgp_enter(&context);
    }
    allocation = sgp_memory_find(address);
    if (address && !allocation) {
        return sgp_leave(not_found);
    }
    const bool has_failed = allocation && allocation->context && allocation->context->error;
    return has_failed ? sgp_leave(allocation->context->error) : CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    struct CUctx_st *owner;
    struct sgp_allocation *allocation;
    CUresult result = beside_captures(enter_owner(dptr, CUDA_ERROR_INVALID_VALUE));

    if (result) {
        return result;
    }
    if (!dptr) {
        return sgp_leave(CUDA_SUCCESS);
    }
    allocation = sgp_memory_find(dptr);
    if (!is_freeable(allocation, dptr)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    owner = allocation->context;
    sgp_object_keep(owner);
    sgp_queue_drain(owner);             /* a kernel may still use it, as with CUDA: freeing waits */
    allocation = sgp_memory_find(dptr); /* others ran meanwhile */
    if (is_freeable(allocation, dptr) && allocation->owner && allocation->owner->free) {
        allocation->owner->free(allocation);
    } else if (is_freeable(allocation, dptr)) {
        sgp_memory_delete(allocation);
    }
    result = owner->error;
    sgp_object_release(owner);
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct CUctx_st *context;
    uint64_t used, capacity;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!free || !total) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    used = sgp_state_used_bytes(context->device->state);
    capacity = context->device->memory_bytes;
    *total = capacity;
    *free = used < capacity ? capacity - used : 0;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct CUctx_st *context;
    const struct sgp_allocation *allocation;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    allocation = sgp_memory_find(dptr);
    if (!allocation || allocation->is_kept) {
        return sgp_leave(CUDA_ERROR_NOT_FOUND);
    }
    if (pbase) {
        *pbase = allocation->start;
    }
    if (psize) {
        *psize = allocation->bytes;
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct CUctx_st *context;
    void *at;
    CUresult result = beside_captures(sgp_enter(&context));

    if (result) {
        return result;
    }
    if (!pp || (Flags & ~(unsigned int)ALL_HOST_FLAGS)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!bytesize) {
        *pp = NULL;
        return sgp_leave(CUDA_SUCCESS);
    }
    at = sgp_reach_map(bytesize, PROT_READ | PROT_WRITE, sgp_view_map_flag());
    if (!at) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = sgp_memory_add_host(context, at, bytesize, SGP_MEMORY_HOST, Flags | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result) {
        sgp_reach_unmap(at, bytesize);
    } else {
        *pp = at;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

/* With the lock: the host memory that begins here, once nothing uses it any more. */
static CUresult host_delete(void *p, enum sgp_memory_kind kind, CUresult not_found)
{
    struct sgp_allocation *allocation = sgp_memory_find((uintptr_t)p);
    struct CUctx_st *owner;

    if (!allocation || allocation->start != (uintptr_t)p || allocation->kind != kind) {
        return not_found;
    }
    owner = allocation->context;
    sgp_object_keep(owner);
    sgp_queue_drain(owner);
    allocation = sgp_memory_find((uintptr_t)p);
    if (allocation && allocation->start == (uintptr_t)p && allocation->kind == kind) {
        sgp_memory_delete(allocation);
    }
    sgp_object_release(owner);
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuMemFreeHost(void *p)
{
    CUresult result = beside_captures(enter_owner((uintptr_t)p, CUDA_ERROR_INVALID_VALUE));

    if (result) {
        return result;
    }
    return sgp_leave(p ? host_delete(p, SGP_MEMORY_HOST, CUDA_ERROR_INVALID_VALUE) : CUDA_SUCCESS);
}

/* Memory that the driver made, or of a device: no registering it, nor the contrary. */
static bool is_pinned(const void *p)
{
    const struct sgp_allocation *allocation = sgp_memory_find((uintptr_t)p);

    return sgp_memory_is_in_device((uintptr_t)p) || (allocation && allocation->kind != SGP_MEMORY_REGISTERED);
}

/* Counts what may be written to, from the first byte on that is asked for. */
static bool pass_writable(const struct sgp_mapping *mapping, void *what)
{
    struct sgp_mapping *left = what;

    if (mapping->is_writable && mapping->start <= left->start && mapping->end > left->start) {
        left->start = mapping->end;
    }
    return true;
}

/* What the program reserved has no memory of its own, unless it has mapped some there itself. */
static bool has_memory(const void *start, size_t bytes)
{
    struct sgp_mapping left = {.start = (uintptr_t)start, .end = (uintptr_t)start + bytes};

    return !sgp_reservation_of(left.start, 1) || (sgp_reservation_of(left.start, bytes) &&
                                                  sgp_mappings_visit(pass_writable, &left) && left.start >= left.end);
}

static bool is_lendable(const struct sgp_mapping *mapping, void *what)
{
    const struct sgp_mapping *wanted = what;

    return mapping->is_shared || mapping->end <= wanted->start || mapping->start >= wanted->end;
}

/* Private memory cannot: another process has a copy of it. */
static bool can_be_lent(const void *start, size_t bytes)
{
    struct sgp_mapping wanted = {.start = (uintptr_t)start, .end = (uintptr_t)start + bytes};

    return sgp_mappings_visit(is_lendable, &wanted);
}

SGP_EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct CUctx_st *context;
    CUresult result = beside_captures(sgp_enter(&context));

    if (result) {
        return result;
    }
    if (!p || !bytesize || (uintptr_t)p + bytesize < (uintptr_t)p || (Flags & ~(unsigned int)ALL_REGISTER_FLAGS)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (is_pinned(p) || !has_memory(p, bytesize)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (sgp_view_is_walled() && !can_be_lent(p, bytesize)) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    return sgp_leave(
        sgp_memory_add_host(context, p, bytesize, SGP_MEMORY_REGISTERED, Flags | CU_MEMHOSTREGISTER_DEVICEMAP));
}

SGP_EXPORT CUresult cuMemHostUnregister(void *p)
{
    CUresult result = beside_captures(enter_owner((uintptr_t)p, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));

    if (result) {
        return result;
    }
    if (!p || is_pinned(p)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(host_delete(p, SGP_MEMORY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
}

static bool is_host(const struct sgp_allocation *allocation)
{
    return allocation && (allocation->kind == SGP_MEMORY_HOST || allocation->kind == SGP_MEMORY_REGISTERED);
}

SGP_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!pdptr || Flags || !is_host(sgp_memory_find((uintptr_t)p))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct CUctx_st *context;
    const struct sgp_allocation *allocation;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    allocation = sgp_memory_find((uintptr_t)p);
    if (!pFlags || !is_host(allocation)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pFlags = allocation->flags;
    return sgp_leave(CUDA_SUCCESS);
}
