/*
 * Memory of the program's own that it registered (cuMemHostRegister). Registering is remembered, and most copies go
 * through the arena as with any pageable memory (copy/registered.c): the pages are not in the region, so that the
 * device does not reach them.
 *
 * Who asks for a device pointer gets one: the pages in which it lies are then replaced, at their place in the program,
 * by pages of the heap with the same bytes, which the device reaches at the heap's address. When it is unregistered, or
 * its context ends, they become pages of the program's own again; those of a mapped file, or that other processes map,
 * come back and get what was written meanwhile.
 *
 * Wrong when: another thread writes to these pages, which may hold more than what was registered, while a device
 * pointer is asked for, or while it is unregistered; when the program forks in between: the child shares them; when
 * others are to see what is written to a shared mapping, or write there, before that; when the program ends with
 * neither done, as one without the runtime may. A page that is replaced already for its neighbour:
 * CUDA_ERROR_NOT_SUPPORTED.
 */
#include <unistd.h>

#include "call/call.h"
#include "context/capture_rules.h"
#include "cuda_api/prototypes.h"
#include "memory/pages.h"
#include "memory/ranges.h"
#include "memory/window.h"
#include "region/client.h"

/* Puts the region's pages, which begin at `heap`, in the place of the program's. */
static bool pages_replace(uint64_t address, uint64_t heap, uint64_t bytes, uint64_t *aside)
{
    uint64_t offset = heap - (uint64_t)(uintptr_t)fgv_guest.region.base;
    int file = fgv_window_reopen(&offset);
    if (file < 0) {
        return false;
    }
    const bool is_done = fgv_pages_replace(address, bytes, heap, file, offset, aside);
    close(file);
    return is_done;
}

static CUresult make_reachable(struct fgv_range *range)
{
    const uint64_t start = range->address & ~(uint64_t)(FGV_PAGE_BYTES - 1);
    const uint64_t end = (range->address + range->bytes + FGV_PAGE_BYTES - 1) & ~(uint64_t)(FGV_PAGE_BYTES - 1);
    if (fgv_memory_is_replaced(start, end - start)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    void *memory;
    CUresult result = cuMemHostAlloc(&memory, end - start, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint64_t heap = (uint64_t)(uintptr_t)memory;
    uint64_t aside;
    if (!pages_replace(start, heap, end - start, &aside)) {
        cuMemFreeHost(memory);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    /* Each knows the other; both begin there already, so that there is room. */
    fgv_memory_enter(heap, end - start, FGV_MEMORY_PINNED, CU_MEMHOSTALLOC_PORTABLE, range->address);
    fgv_memory_set_aside(heap, aside);
    range->owner = heap + (range->address - start);
    fgv_memory_enter(range->address, range->bytes, FGV_MEMORY_REGISTERED, range->flags, range->owner);
    return CUDA_SUCCESS;
}

/* What the device reaches `address` at, which lies in the range. */
static CUresult registered_pointer(struct fgv_range *range, uint64_t address, CUdeviceptr *pointer)
{
    CUresult result = range->owner != 0 ? CUDA_SUCCESS : make_reachable(range);
    if (result == CUDA_SUCCESS) {
        *pointer = range->owner + (address - range->address);
    }
    return result;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    uint64_t address = (uint64_t)(uintptr_t)p;
    if (!p || bytesize == 0 || (Flags & ~known) != 0 || bytesize > UINT64_MAX - address) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (fgv_memory_find(address, &range) && range.kind != FGV_MEMORY_REGISTERED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_memory_overlaps_registered(address, bytesize)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    return fgv_memory_enter(address, bytesize, FGV_MEMORY_REGISTERED, Flags, 0) ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostUnregister(void *p)
{
    struct fgv_range range;
    const uint64_t address = (uint64_t)(uintptr_t)p;
    const bool is_known = fgv_memory_find(address, &range);
    CUresult result = fgv_call_allowed();
    if (result == CUDA_ERROR_INVALID_CONTEXT && p && !is_known) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!p || (is_known && range.kind != FGV_MEMORY_REGISTERED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_known || range.address != address) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    if (range.owner != 0) {
        const uint64_t heap = range.owner & ~(uint64_t)(FGV_PAGE_BYTES - 1);
        result = cuMemFreeHost((void *)(uintptr_t)heap); /* and with it the pages come back */
    }
    if (result == CUDA_SUCCESS) {
        fgv_memory_remove(address, FGV_MEMORY_REGISTERED, &range);
    }
    return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pdptr || Flags != 0 || !fgv_memory_find((uint64_t)(uintptr_t)p, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range.kind == FGV_MEMORY_REGISTERED) {
        return registered_pointer(&range, (uint64_t)(uintptr_t)p, pdptr);
    }
    if (!fgv_memory_is_shared(range.kind)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}
