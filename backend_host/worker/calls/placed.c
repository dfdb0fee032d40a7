/*
 * Pages of the region's heap at addresses that the client reserved, in place of memory of the device: pinned host
 * memory there, so that kernels and the client, which has them at the same address, reach them at any time. The heap
 * has them where it had them before, too.
 *
 * A request takes one out and puts the other in, so that no other request finds the addresses empty. The driver pins
 * them at this address; what of a reservation has no mapping is memory like any other to it (docs/lab/managed.md).
 *
 * Wrong when: what was there cannot be put back, after the driver refused the other. The addresses are empty then, and
 * work that uses them faults.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "base/count.h"
#include "calls/memory.h"
#include "calls/physical.h"
#include "calls/state.h"
#include "calls/virtual_memory.h"
#include "client/piece.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static bool has_calls(const struct fgw_worker *worker)
{
    return worker->driver.cuMemMap && worker->driver.cuMemUnmap && worker->driver.cuMemSetAccess &&
           worker->driver.cuMemHostRegister_v2 && worker->driver.cuMemHostUnregister;
}

/* Nothing of this process's is there, as the driver's own reservation has it. */
static void clear(uint64_t address, uint64_t bytes)
{
    mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Of 0 bytes that are shared, mremap makes another mapping, and leaves the first one. It looks at one mapping, and
 * would go on in its file. */
static bool map(struct fgw_worker *worker, uint64_t address, uint64_t heap, uint64_t bytes)
{
    while (bytes > 0) {
        const uint64_t file_bytes = fgw_piece_file_end(worker, heap) - heap;
        const uint64_t some_bytes = bytes < file_bytes ? bytes : file_bytes;
        if (mremap(at(heap), 0, some_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at(address)) != at(address)) {
            return false;
        }
        address += some_bytes;
        heap += some_bytes;
        bytes -= some_bytes;
    }
    return true;
}

/* Puts the pages there; false: nothing is. */
static CUresult place(struct fgw_worker *worker, const struct fgw_range *range)
{
    if (!fgw_ranges_make_room(&worker->calls->placed, FGW_MAX_RANGES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = map(worker, range->address, range->owner, range->bytes)
                          ? fgw_memory_register(worker, range->address, range->bytes)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        struct fgw_range placed = *range;
        placed.context = worker->current;
        fgw_ranges_insert(&worker->calls->placed, placed);
    } else {
        clear(range->address, range->bytes);
    }
    return result;
}

/* Puts memory of the device there, which the client may use. */
static CUresult put_memory(struct fgw_worker *worker, const struct fgw_range *range)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = fgw_mapping_enter(worker, range, 0);
    if (result != CUDA_SUCCESS || fgw_physical_find(worker, range->owner)->extent != 0) {
        return result; /* extents are made with access */
    }
    result = worker->driver.cuMemSetAccess(range->address, range->bytes, &access, 1);
    if (result != CUDA_SUCCESS) {
        fgw_mapping_leave(worker, range->address, range->bytes);
    }
    return result;
}

CUresult fgw_serve_host_place(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_host_place *fixed = request->fixed;
    (void)reply;
    const struct fgw_range *mapped = fgw_ranges_find(&worker->calls->mapped, fixed->address);
    if (!mapped || mapped->bytes != fixed->bytes || fixed->heap % FGV_PAGE_BYTES != 0 ||
        !fgw_memory_is_own_heap(worker, fixed->heap, fixed->bytes) ||
        fgw_memory_is_in_arena(worker, fixed->heap, fixed->bytes)) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!has_calls(worker)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct fgw_physical *physical = fgw_physical_find(worker, mapped->owner);
    if (physical->nr_retained == 0 || physical->bytes != mapped->bytes) {
        return CUDA_ERROR_INVALID_VALUE; /* it could not be put back */
    }
    const struct fgw_range before = *mapped;
    CUresult result = fgw_mapping_leave(worker, fixed->address, fixed->bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgw_range range = {.address = fixed->address, .bytes = fixed->bytes, .owner = fixed->heap};
    result = place(worker, &range);
    if (result != CUDA_SUCCESS) {
        put_memory(worker, &before);
    }
    return result;
}

CUresult fgw_serve_host_unplace(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_host_unplace *fixed = request->fixed;
    (void)reply;
    struct fgw_range *found = fgw_ranges_find(&worker->calls->placed, fixed->address);
    const struct fgw_physical *physical = fixed->allocation != 0 ? fgw_physical_find(worker, fixed->allocation) : NULL;
    if (!found ||
        (fixed->allocation != 0 && (!physical || physical->nr_retained == 0 || physical->bytes != found->bytes))) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = worker->driver.cuMemHostUnregister(at(found->address));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct fgw_range range = *found;
    fgw_ranges_erase(&worker->calls->placed, found);
    clear(range.address, range.bytes);
    if (physical) {
        const struct fgw_range memory = {.address = range.address, .bytes = range.bytes, .owner = fixed->allocation};
        result = put_memory(worker, &memory);
        if (result != CUDA_SUCCESS) {
            place(worker, &range);
        }
    }
    return result;
}
