/* Managed memory that is to stay with the CPU: see residence.h. */
#include "managed/residence.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bulk.h"
#include "base/log.h"
#include "managed/contents.h"
#include "managed/granules.h"
#include "managed/said.h"
#include "memory/heap_pages.h"
#include "memory/placed.h"
#include "memory/ranges.h"

static bool belongs_on_the_host(const struct fgv_area *area)
{
    struct fgv_range range;
    if (area->nr_shared != 0) {
        return fgv_said_host_bytes(area->address, area->bytes) != 0;
    }
    return fgv_memory_find(area->address, &range) && fgv_said_host_bytes(range.address, range.bytes) == range.bytes;
}

static void say(const char *what, CUresult result)
{
    fgv_log_cause(FGV_CAUSE_MANAGED_PLACE, "%s (error %d)", what, (int)result);
}

/* Nothing of it is given, and nobody watches it. */
static void reset(struct fgv_area *area, enum fgv_granule state)
{
    fgv_granules_end(area);
    memset(area->granules, state, area->nr_granules);
    area->first_given = area->end_given = 0;
    area->wanted = area->wanted_end = 0;
    area->is_fresh = false;
}

static void use_heap(struct fgv_area *area, uint64_t heap)
{
    area->heap = heap;
    area->shadow = (uint8_t *)(uintptr_t)heap;
    reset(area, FGV_GRANULE_GUEST);
}

/* The program's pages are its own again, and all of them count as written. */
static void use_own(struct fgv_area *area)
{
    area->heap = 0;
    reset(area, FGV_GRANULE_DEVICE);
    fgv_granules_begin_given(area, true);
}

static void move_in(struct fgv_area *area)
{
    uint64_t bytes;
    const uint64_t heap = fgv_heap_pages_take(area->bytes, &bytes);
    uint8_t *to = (uint8_t *)(uintptr_t)heap;
    if (heap == 0) {
        return;
    }
    CUresult result = CUDA_ERROR_NOT_READY;
    if (fgv_granules_quieten(area)) {
        fgv_contents_fetch_to(area, to);
        result = fgv_placed_put(area->address, area->bytes, heap, area->context_handle);
        if (result != CUDA_SUCCESS) {
            say("managed memory that is to stay with the CPU goes to the device and back as any other", result);
        }
    }
    if (result != CUDA_SUCCESS) {
        fgv_heap_pages_give(heap, bytes);
        return;
    }
    fgv_contents_move_to(area, to);
    if (fgv_placed_map(area->address, area->bytes, heap)) {
        munmap(area->shadow, area->bytes);
        use_heap(area, heap);
        fgv_mapping_give_memory(&area->mapping);
    } else if (fgv_placed_remove(area->address, area->mapping.handle, area->context_handle) == CUDA_SUCCESS) {
        fgv_bulk_copy(area->shadow, to, area->bytes);
        use_own(area);
        fgv_heap_pages_give(heap, bytes);
    }
}

/* Its pages, which the program has there already, become the device's again. False: they stay the heap's. */
static bool leave_heap(struct fgv_area *area)
{
    CUresult result = fgv_mapping_take_memory(&area->mapping);
    if (result == CUDA_SUCCESS && !fgv_area_fill(area, (const uint8_t *)(uintptr_t)area->heap)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (result == CUDA_SUCCESS) {
        result = fgv_placed_remove(area->address, area->mapping.handle, area->context_handle);
        if (result != CUDA_SUCCESS) {
            munmap(area->shadow, area->bytes);
        }
    }
    if (result != CUDA_SUCCESS) {
        say("managed memory stays with the CPU, though it need not any more", result);
    }
    return result == CUDA_SUCCESS;
}

static void move_out(struct fgv_area *area)
{
    const uint64_t heap = area->heap;
    if (!fgv_granules_quieten(area)) {
        return;
    }
    if (leave_heap(area)) {
        use_own(area);
        fgv_heap_pages_give(heap, area->bytes);
        return;
    }
    fgv_placed_map(area->address, area->bytes, heap);
    if (area->mapping.handle != 0) {
        fgv_mapping_give_memory(&area->mapping);
    }
    use_heap(area, heap);
}

void fgv_residence_review(struct fgv_area *area)
{
    const bool belongs = !area->variables && belongs_on_the_host(area);
    fgv_contents_use_context(area);
    if (belongs && area->heap == 0) {
        move_in(area);
    } else if (!belongs && area->heap != 0) {
        move_out(area);
    }
}
