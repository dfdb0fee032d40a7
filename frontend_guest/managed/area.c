/* Areas of managed memory: see area.h. */
#include "managed/area.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "context/context.h"
#include "cuda_api/prototypes.h"
#include "managed/trap.h"
#include "memory/reservation.h"

struct fgv_area *fgv_areas;
_Atomic uint64_t fgv_areas_low = UINT64_MAX;
_Atomic uint64_t fgv_areas_high;

/* Both mappings of the same pages. A child of this process has neither, as it has no managed memory natively. */
static bool pages_make(struct fgv_area *area)
{
    const uint64_t bytes = area->mapping.bytes;
    void *at = (void *)(uintptr_t)area->mapping.address;
    const int fd = memfd_create("fairgv-managed", MFD_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    area->shadow = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0) {
        area->shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    bool is_made =
        area->shadow != MAP_FAILED && mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == at;
    close(fd);
    if (is_made) { /* where shared memory may have huge pages; elsewhere nothing comes of it */
        madvise(area->shadow, bytes, MADV_HUGEPAGE);
        madvise(at, bytes, MADV_HUGEPAGE);
    }
    is_made = is_made && madvise(area->shadow, bytes, MADV_DONTFORK) == 0 && madvise(at, bytes, MADV_DONTFORK) == 0 &&
              fgv_trap_set(area->mapping.address, bytes);
    if (!is_made && area->shadow != MAP_FAILED) {
        munmap(area->shadow, bytes);
    }
    return is_made;
}

/* Leaves the address without access, as the reservation has it. */
static void pages_drop(const struct fgv_area *area)
{
    void *at = (void *)(uintptr_t)area->mapping.address;
    mmap(at, area->mapping.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    munmap(area->shadow, area->mapping.bytes);
}

static CUresult stream_make(struct fgv_area *area)
{
    const struct fgv_area *other = fgv_areas;
    while (other && other->context_handle != area->context_handle) {
        other = other->next;
    }
    if (other) {
        area->stream = other->stream;
        return CUDA_SUCCESS;
    }
    return cuStreamCreate(&area->stream, CU_STREAM_NON_BLOCKING);
}

/* The last one of its context takes the stream with it. */
static void stream_drop(const struct fgv_area *area)
{
    const struct fgv_area *other = fgv_areas;
    while (other && other->stream != area->stream) {
        other = other->next;
    }
    if (!other) {
        cuStreamDestroy_v2(area->stream);
    }
}

struct fgv_area *fgv_area_make(uint64_t bytes, CUresult *result)
{
    struct fgv_area *area = calloc(1, sizeof(*area));
    const uint64_t rounded_bytes = (bytes + FGV_MAPPING_BYTES - 1) / FGV_MAPPING_BYTES * FGV_MAPPING_BYTES;
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!area || rounded_bytes < bytes) {
        free(area);
        return NULL;
    }
    area->nr_blocks = rounded_bytes / FGV_BLOCK_BYTES;
    area->blocks = calloc(area->nr_blocks, 1);
    area->mapping.bytes = rounded_bytes;
    area->context = fgv_thread.context;
    area->context_handle = fgv_thread.current;
    if (area->blocks) {
        *result = fgv_mapping_make(&area->mapping);
    }
    if (*result == CUDA_SUCCESS) {
        *result = stream_make(area);
        if (*result != CUDA_SUCCESS) {
            fgv_mapping_drop(&area->mapping);
        }
    }
    if (*result == CUDA_SUCCESS && (!fgv_reservation_is_guarded(area->mapping.address) || !pages_make(area))) {
        stream_drop(area);
        fgv_mapping_drop(&area->mapping);
        *result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (*result != CUDA_SUCCESS) {
        free(area->blocks);
        free(area);
        return NULL;
    }
    area->is_fresh = true;
    const uint64_t low = area->mapping.address, high = low + rounded_bytes;
    if (low < atomic_load_explicit(&fgv_areas_low, memory_order_relaxed)) {
        atomic_store_explicit(&fgv_areas_low, low, memory_order_relaxed);
    }
    if (high > atomic_load_explicit(&fgv_areas_high, memory_order_relaxed)) {
        atomic_store_explicit(&fgv_areas_high, high, memory_order_relaxed);
    }
    area->next = fgv_areas;
    fgv_areas = area;
    return area;
}

void fgv_area_drop(struct fgv_area *area)
{
    struct fgv_area **link = &fgv_areas;
    while (*link != area) {
        link = &(*link)->next;
    }
    *link = area->next;
    pages_drop(area);
    stream_drop(area);
    fgv_mapping_drop(&area->mapping);
    free(area->blocks);
    free(area);
}

struct fgv_area *fgv_area_find(uint64_t address)
{
    struct fgv_area *area = fgv_areas;
    while (area && address - area->mapping.address >= area->mapping.bytes) {
        area = area->next;
    }
    return area;
}

static bool is_taken(const struct fgv_area *area, uint64_t step)
{
    return (area->steps[step / 64] >> step % 64 & 1) != 0;
}

static void mark(struct fgv_area *area, uint64_t offset, uint64_t bytes, bool is_taken)
{
    for (uint64_t step = offset / FGV_AREA_STEP_BYTES; step * FGV_AREA_STEP_BYTES < offset + bytes; step++) {
        const uint64_t bit = UINT64_C(1) << step % 64;
        area->steps[step / 64] = is_taken ? area->steps[step / 64] | bit : area->steps[step / 64] & ~bit;
    }
}

uint64_t fgv_area_take(struct fgv_area *area, uint64_t bytes)
{
    const uint64_t nr = (bytes + FGV_AREA_STEP_BYTES - 1) / FGV_AREA_STEP_BYTES;
    uint64_t nr_free = 0;
    for (uint64_t step = 0; step < FGV_AREA_NR_STEPS; step++) {
        nr_free = is_taken(area, step) ? 0 : nr_free + 1;
        if (nr_free == nr) {
            const uint64_t offset = (step + 1 - nr) * FGV_AREA_STEP_BYTES;
            mark(area, offset, bytes, true);
            area->nr_shared++;
            return offset;
        }
    }
    return UINT64_MAX;
}

void fgv_area_give(struct fgv_area *area, uint64_t offset, uint64_t bytes)
{
    mark(area, offset, bytes, false);
    area->nr_shared--;
}
