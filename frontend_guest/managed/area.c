/* Areas of managed memory: see area.h. */
#include "managed/area.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bulk.h"
#include "base/thread.h"
#include "context/context.h"
#include "cuda_api/prototypes.h"
#include "managed/trap.h"
#include "memory/heap_pages.h"
#include "memory/placed.h"
#include "memory/reservation.h"

struct fgv_area *fgv_areas;
_Atomic uint64_t fgv_areas_low = UINT64_MAX;
_Atomic uint64_t fgv_areas_high;

/* Both mappings of the same pages, the program's in place of what is there: contents are there first. A child of this
 * process has neither, as it has no managed memory natively. */
static bool pages_make(struct fgv_area *area, const uint8_t *contents)
{
    const uint64_t bytes = area->bytes;
    void *at = (void *)(uintptr_t)area->address;
    const int fd = memfd_create("fairgv-managed", MFD_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    uint8_t *shadow = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0) {
        shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    bool is_made = shadow != MAP_FAILED;
    if (is_made) { /* where shared memory may have huge pages; elsewhere nothing comes of it */
        madvise(shadow, bytes, MADV_HUGEPAGE);
    }
    if (is_made && contents) {
        fgv_bulk_copy(shadow, contents, bytes);
    }
    is_made = is_made && mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == at;
    close(fd);
    if (is_made) {
        madvise(at, bytes, MADV_HUGEPAGE);
    }
    is_made = is_made && madvise(shadow, bytes, MADV_DONTFORK) == 0 && madvise(at, bytes, MADV_DONTFORK) == 0 &&
              fgv_trap_set(area->address, bytes);
    if (is_made) {
        area->shadow = shadow;
    } else if (shadow != MAP_FAILED) {
        munmap(shadow, bytes);
    }
    return is_made;
}

bool fgv_area_fill(struct fgv_area *area, const uint8_t *contents)
{
    return fgv_trap_hold(area->address, area->bytes) && pages_make(area, contents);
}

static CUresult stream_make(struct fgv_area *area)
{
    const struct fgv_area *other = fgv_areas;
    while (other && (other->context_handle != area->context_handle || !other->stream)) {
        other = other->next;
    }
    if (other) {
        area->stream = other->stream;
        return CUDA_SUCCESS;
    }
    return cuStreamCreate(&area->stream, CU_STREAM_NON_BLOCKING);
}

/* The last one of its context takes the stream with it. */
static void stream_drop(struct fgv_area *area)
{
    const CUstream stream = area->stream;
    area->stream = NULL;
    const struct fgv_area *other = fgv_areas;
    while (other && other->stream != stream) {
        other = other->next;
    }
    if (!other && stream) {
        cuStreamDestroy_v2(stream);
    }
}

CUresult fgv_area_adopt(struct fgv_area *area, struct fgv_context *context, uint64_t handle)
{
    area->context = context;
    area->context_handle = handle;
    return stream_make(area);
}

void fgv_area_orphan(struct fgv_area *area)
{
    stream_drop(area);
    area->context = NULL;
    area->context_handle = 0;
    area->is_doubtful = true;
}

static void area_free(struct fgv_area *area)
{
    for (size_t i = 0; i < area->nr_variables; i++) {
        free(area->variables[i].name);
    }
    free(area->variables);
    free(area->granules);
    free(area);
}

static struct fgv_area *area_new(uint64_t bytes)
{
    struct fgv_area *area = calloc(1, sizeof(*area));
    if (!area) {
        return NULL;
    }
    area->bytes = bytes;
    area->nr_granules = (bytes + FGV_GRANULE_BYTES - 1) / FGV_GRANULE_BYTES;
    area->granules = calloc(area->nr_granules, 1);
    if (!area->granules) {
        free(area);
        return NULL;
    }
    return area;
}

static void enter(struct fgv_area *area)
{
    const uint64_t end = area->address + area->bytes;
    if (area->address < atomic_load_explicit(&fgv_areas_low, memory_order_relaxed)) {
        atomic_store_explicit(&fgv_areas_low, area->address, memory_order_relaxed);
    }
    if (end > atomic_load_explicit(&fgv_areas_high, memory_order_relaxed)) {
        atomic_store_explicit(&fgv_areas_high, end, memory_order_relaxed);
    }
    area->next = fgv_areas;
    fgv_areas = area;
}

struct fgv_area *fgv_area_make(uint64_t bytes, CUresult *result)
{
    const uint64_t rounded_bytes = (bytes + FGV_MAPPING_BYTES - 1) / FGV_MAPPING_BYTES * FGV_MAPPING_BYTES;
    struct fgv_area *area = rounded_bytes < bytes ? NULL : area_new(rounded_bytes);
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!area) {
        return NULL;
    }
    area->mapping.bytes = rounded_bytes;
    *result = fgv_mapping_make(&area->mapping);
    if (*result == CUDA_SUCCESS) {
        area->address = area->mapping.address;
        *result = fgv_area_adopt(area, fgv_thread.context, fgv_thread.current);
        if (*result == CUDA_SUCCESS && (!fgv_reservation_is_guarded(area->address) || !pages_make(area, NULL))) {
            stream_drop(area);
            *result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (*result != CUDA_SUCCESS) {
            fgv_mapping_drop(&area->mapping);
        }
    }
    if (*result != CUDA_SUCCESS) {
        area_free(area);
        return NULL;
    }
    area->is_fresh = true;
    enter(area);
    return area;
}

struct fgv_area *fgv_area_make_at(uint64_t address, uint64_t bytes)
{
    struct fgv_area *area = area_new(bytes);
    if (!area) {
        return NULL;
    }
    area->address = address;
    if (!pages_make(area, NULL)) {
        area_free(area);
        return NULL;
    }
    enter(area);
    return area;
}

void fgv_area_leave(struct fgv_area *area)
{
    struct fgv_area **link = &fgv_areas;
    while (*link != area) {
        link = &(*link)->next;
    }
    *link = area->next;
    if (area->heap == 0) {
        munmap(area->shadow, area->bytes);
    }
    stream_drop(area);
    area_free(area);
}

/* Pages that the worker would not let go of stay taken until the program ends: the device may still write there. */
static void heap_drop(struct fgv_area *area)
{
    if (fgv_placed_remove(area->address, 0, area->context_handle) == CUDA_SUCCESS) {
        fgv_heap_pages_give(area->heap, area->bytes);
    }
}

/* The addresses of an allocation stay without access, as the reservation has them, until that goes. */
void fgv_area_drop(struct fgv_area *area)
{
    void *at = (void *)(uintptr_t)area->address;
    struct fgv_mapping mapping = area->mapping;
    if (area->variables) {
        munmap(at, area->bytes);
    } else {
        mmap(at, area->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    if (area->heap != 0) {
        heap_drop(area);
    }
    fgv_area_leave(area);
    if (mapping.bytes != 0) {
        fgv_mapping_drop(&mapping);
    }
}

struct fgv_area *fgv_area_find(uint64_t address)
{
    struct fgv_area *area = fgv_areas;
    while (area && address - area->address >= area->bytes) {
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
