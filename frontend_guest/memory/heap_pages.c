/* Whole pages of the region's heap: see heap_pages.h. */
#include "memory/heap_pages.h"

#include "base/log.h"
#include "ivshmem/heap.h"
#include "memory/window.h"
#include "region/client.h"

/* Many programs do not look at what they get, and crash. */
static void explain_full(uint64_t bytes)
{
    const struct fgv_region *region = &fgv_guest.region;
    const bool is_command = region->wake == FGV_WAKE_FUTEX;
    fgv_growth_explain(&fgv_guest.growth);
    fgv_log_cause(FGV_CAUSE_REGION_FULL,
                  "no room for %llu MiB of pinned or managed memory: there are %llu MiB for it; %s",
                  (unsigned long long)(bytes + (1 << 20) - 1) >> 20,
                  (unsigned long long)(region->region_bytes + fgv_growth_mapped(&fgv_guest.growth)) >> 20,
                  is_command ? "fairgv-run --region SIZE gives more"
                             : "on the host, fairgv-host attach --region SIZE gives more");
}

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + FGV_PAGE_BYTES - 1) / FGV_PAGE_BYTES * FGV_PAGE_BYTES;
}

static uint64_t take(uint64_t bytes, uint64_t *rounded_bytes)
{
    if (bytes > fgv_guest.region.region_bytes + fgv_guest.region.window.bytes) {
        return FGV_HEAP_NONE;
    }
    *rounded_bytes = whole_pages(bytes);
    const uint64_t offset = fgv_heap_allocate(&fgv_guest.region, fgv_guest.index, *rounded_bytes);
    return offset != FGV_HEAP_NONE ? offset : fgv_window_allocate(*rounded_bytes);
}

uint64_t fgv_heap_pages_take(uint64_t bytes, uint64_t *rounded_bytes)
{
    const uint64_t offset = take(bytes, rounded_bytes);
    if (offset == FGV_HEAP_NONE) {
        explain_full(bytes);
        return 0;
    }
    return (uint64_t)(uintptr_t)(fgv_guest.region.base + offset);
}

void fgv_heap_pages_give(uint64_t address, uint64_t bytes)
{
    fgv_heap_free(&fgv_guest.region, fgv_guest.index, address - (uint64_t)(uintptr_t)fgv_guest.region.base,
                  whole_pages(bytes));
}
