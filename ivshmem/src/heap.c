/*
 * The heap of a region. heap.h tells what it is.
 *
 * Pages are claimed in ascending order, so of several allocators that want overlapping runs the one that reaches the
 * contended page first keeps it. One that loses gives back what it had and looks further; what it held meanwhile may
 * have hidden room from a third, which is why a search that fails although enough pages are free is repeated.
 *
 * Runs of the region come first, and none reaches from it into the window: the window's owners lie between.
 */
#include "ivshmem/heap.h"

#define FGV_HEAP_MAX_PASSES 4u

/* Where this process looks first in each area. A wrong value costs time only, so one serves all its regions. */
static _Atomic uint64_t next_page_hints[FGV_NR_HEAP_AREAS];

static uint64_t nr_pages_of(uint64_t bytes)
{
    return bytes / FGV_PAGE_BYTES + (bytes % FGV_PAGE_BYTES != 0);
}

static bool take_page(const struct fgv_heap_area *area, uint64_t page, uint16_t owner)
{
    uint16_t expected = 0;
    /* Acquire: pairs with the release in give_page; whoever had the page before is done with it. */
    return atomic_compare_exchange_strong_explicit(&area->owners[page], &expected, owner, memory_order_acquire,
                                                   memory_order_relaxed);
}

static bool give_page(const struct fgv_heap_area *area, uint64_t page, uint16_t owner)
{
    /* Release: pairs with the acquire in take_page. Compared, so that a page the host took back meanwhile is left to
     * its new owner. */
    return atomic_compare_exchange_strong_explicit(&area->owners[page], &owner, 0, memory_order_release,
                                                   memory_order_relaxed);
}

static bool is_free(const struct fgv_heap_area *area, uint64_t page)
{
    return atomic_load_explicit(&area->owners[page], memory_order_relaxed) ==
           0; /* relaxed: only a guess until take_page */
}

/* Claims `nr_pages` starting at `first`. Returns nr_pages, or how far it came, having given back those. */
static uint64_t claim_run(const struct fgv_heap_area *area, uint64_t first, uint64_t nr_pages, uint16_t owner)
{
    for (uint64_t i = 0; i < nr_pages; i++) {
        if (take_page(area, first + i, owner)) {
            continue;
        }
        for (uint64_t j = i; j > 0; j--) {
            give_page(area, first + j - 1, owner);
        }
        return i;
    }
    return nr_pages;
}

/* First fit among runs that start in [begin, end); UINT64_MAX when there is none. */
static uint64_t find_and_claim(const struct fgv_heap_area *area, uint64_t begin, uint64_t end, uint64_t nr_pages,
                               uint16_t owner)
{
    uint64_t run = 0; /* free pages seen just before `page` */
    for (uint64_t page = begin; page < area->nr_pages && page - run < end; page++) {
        run = is_free(area, page) ? run + 1 : 0;
        if (run < nr_pages) {
            continue;
        }
        uint64_t first = page + 1 - run;
        uint64_t nr_claimed = claim_run(area, first, nr_pages, owner);
        if (nr_claimed == nr_pages) {
            return first;
        }
        page = first + nr_claimed;
        run = 0;
    }
    return UINT64_MAX;
}

static uint64_t nr_free_in(const struct fgv_heap_area *area)
{
    uint64_t nr = 0;
    for (uint64_t page = 0; page < area->nr_pages; page++) {
        nr += is_free(area, page);
    }
    return nr;
}

static uint64_t allocate_in(const struct fgv_heap_area *area, _Atomic uint64_t *hint_at, uint64_t nr_pages,
                            uint16_t owner)
{
    for (uint32_t pass = 0; pass < FGV_HEAP_MAX_PASSES; pass++) {
        uint64_t hint = atomic_load_explicit(hint_at, memory_order_relaxed);
        if (hint >= area->nr_pages) {
            hint = 0;
        }
        uint64_t first = find_and_claim(area, hint, area->nr_pages, nr_pages, owner);
        if (first == UINT64_MAX) {
            first = find_and_claim(area, 0, hint, nr_pages, owner);
        }
        if (first != UINT64_MAX) {
            atomic_store_explicit(hint_at, first + nr_pages, memory_order_relaxed);
            return area->offset + first * FGV_PAGE_BYTES;
        }
        if (nr_free_in(area) < nr_pages) {
            break;
        }
    }
    return FGV_HEAP_NONE;
}

uint64_t fgv_heap_allocate(const struct fgv_region *region, uint32_t client_index, uint64_t bytes)
{
    const uint64_t nr_pages = nr_pages_of(bytes);
    if (client_index >= FGV_NR_CLIENTS || nr_pages == 0) {
        return FGV_HEAP_NONE;
    }
    for (uint32_t i = 0; i < FGV_NR_HEAP_AREAS; i++) {
        const struct fgv_heap_area area = fgv_region_area(region, i);
        if (nr_pages > area.nr_pages) {
            continue;
        }
        uint64_t offset = allocate_in(&area, &next_page_hints[i], nr_pages, (uint16_t)(client_index + 1));
        if (offset != FGV_HEAP_NONE) {
            return offset;
        }
    }
    return FGV_HEAP_NONE;
}

uint64_t fgv_heap_free(const struct fgv_region *region, uint32_t client_index, uint64_t offset, uint64_t bytes)
{
    struct fgv_heap_area area;
    if (client_index >= FGV_NR_CLIENTS || offset % FGV_PAGE_BYTES != 0 ||
        !fgv_region_find_area(region, offset, bytes, &area)) {
        return 0;
    }
    const uint64_t first = (offset - area.offset) / FGV_PAGE_BYTES;
    uint64_t nr_freed = 0;
    for (uint64_t i = 0; i < nr_pages_of(bytes); i++) {
        nr_freed += give_page(&area, first + i, (uint16_t)(client_index + 1));
    }
    /* First fit from here: what was freed last is warm, and a loop of allocate and free stays in place. */
    if (nr_freed != 0) {
        atomic_store_explicit(&next_page_hints[offset >= region->region_bytes], first, memory_order_relaxed);
    }
    return nr_freed;
}

uint64_t fgv_heap_reclaim(const struct fgv_region *region, uint32_t client_index)
{
    if (client_index >= FGV_NR_CLIENTS) {
        return 0;
    }
    const uint16_t owner = (uint16_t)(client_index + 1);
    uint64_t nr_freed = 0;
    for (uint32_t i = 0; i < FGV_NR_HEAP_AREAS; i++) {
        const struct fgv_heap_area area = fgv_region_area(region, i);
        for (uint64_t page = 0; page < area.nr_pages; page++) {
            if (atomic_load_explicit(&area.owners[page], memory_order_relaxed) == owner) {
                nr_freed += give_page(&area, page, owner);
            }
        }
    }
    fgv_grower_give(region, client_index);
    return nr_freed;
}

uint64_t fgv_window_end_bytes(const struct fgv_region *region)
{
    const struct fgv_heap_area area = fgv_region_area(region, 1);
    uint64_t nr = 0;
    while (nr < area.nr_pages && is_free(&area, area.nr_pages - 1 - nr)) {
        nr++;
    }
    return nr * FGV_PAGE_BYTES;
}

bool fgv_grower_take(const struct fgv_region *region, uint32_t client_index)
{
    uint32_t expected = 0;
    /* Acquire: pairs with the release in fgv_grower_give; the device is then done with what was asked before. */
    return atomic_compare_exchange_strong_explicit(&region->header->grower, &expected, client_index + 1,
                                                   memory_order_acquire, memory_order_relaxed);
}

void fgv_grower_give(const struct fgv_region *region, uint32_t client_index)
{
    uint32_t expected = client_index + 1;
    atomic_compare_exchange_strong_explicit(&region->header->grower, &expected, 0, memory_order_release,
                                            memory_order_relaxed);
}
