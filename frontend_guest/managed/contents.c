/* The contents of granules, as they go between the device and the program: see contents.h. */
#include "managed/contents.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bulk.h"
#include "base/log.h"
#include "base/thread.h"
#include "copy/copy.h"
#include "managed/trap.h"
#include "region/client.h"

#define POPULATE_WRITE 23 /* of madvise, since Linux 5.14 */

void fgv_contents_use_context(const struct fgv_area *area)
{
    fgv_thread.context = area->context;
    fgv_thread.current = area->context_handle;
}

static uint8_t *shadow_of(const struct fgv_area *area, uint64_t granule)
{
    return area->shadow + granule * FGV_GRANULE_BYTES;
}

/* One copy between the device and the shadow, or what stands for it, of bytes that lie in the area. */
static CUresult copy(const struct fgv_area *area, uint8_t *shadow, uint64_t address, uint64_t bytes, bool is_to_device)
{
    const struct fgv_side device = {.address = address, .kind = FGV_MEMORY_DEVICE};
    const struct fgv_side here = {.address = (uint64_t)(uintptr_t)(shadow + (address - area->address))};
    return is_to_device ? fgv_copy_range(&device, &here, bytes, area->stream, false)
                        : fgv_copy_range(&here, &device, bytes, area->stream, true);
}

/* Some granules; of variables nothing else. */
static CUresult copy_granules(const struct fgv_area *area, uint8_t *shadow, uint64_t first, uint64_t end,
                              bool is_to_device)
{
    const uint64_t address = fgv_area_address(area, first), address_end = address + fgv_area_bytes(area, first, end);
    CUresult result = fgv_client_is_open();
    if (result == CUDA_SUCCESS && !area->variables) {
        return copy(area, shadow, address, address_end - address, is_to_device);
    }
    for (size_t i = 0; i < area->nr_variables && result == CUDA_SUCCESS; i++) {
        const struct fgv_variable *variable = &area->variables[i];
        const uint64_t variable_end = variable->address + variable->bytes;
        const uint64_t from = variable->address > address ? variable->address : address;
        const uint64_t to = variable_end < address_end ? variable_end : address_end;
        if (from < to) {
            result = copy(area, shadow, from, to - from, is_to_device);
        }
    }
    return result;
}

static void fetch(const struct fgv_area *area, uint8_t *shadow, uint64_t first, uint64_t end)
{
    CUresult result = copy_granules(area, shadow, first, end, false);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) {
        fgv_log_cause(FGV_CAUSE_MANAGED,
                      "managed memory cannot be brought back from the device (error %d): the program sees what it had "
                      "before",
                      (int)result);
    }
}

/* Makes pages that were never written to, if that matters, at once and not by a fault for each. */
static void fill(const struct fgv_area *area, uint64_t first, uint64_t end)
{
    if (!fgv_trap_needs_contents()) {
        return;
    }
    volatile uint8_t *at = shadow_of(area, first);
    const uint64_t bytes = fgv_area_bytes(area, first, end);
    if (madvise((void *)(uintptr_t)at, bytes, POPULATE_WRITE) != 0) {
        for (uint64_t i = 0; i < bytes; i += FGV_PAGE_BYTES) {
            at[i] = at[i];
        }
    }
}

/* The end of the granules from `first` on that are in the same state. */
static uint64_t run_end(const struct fgv_area *area, uint64_t first, uint64_t end)
{
    uint64_t granule = first + 1;
    while (granule < end && area->granules[granule] == area->granules[first]) {
        granule++;
    }
    return granule;
}

static bool give_run(struct fgv_area *area, uint64_t first, uint64_t end, enum fgv_granule right)
{
    const uint64_t address = fgv_area_address(area, first), bytes = fgv_area_bytes(area, first, end);
    bool is_given;
    if (area->granules[first] >= right) {
        return true;
    }
    if (area->granules[first] == FGV_GRANULE_BOTH) {
        is_given = fgv_trap_make_writable(address, bytes);
    } else {
        if (area->is_fresh) {
            fill(area, first, end);
        } else {
            fetch(area, area->shadow, first, end);
        }
        is_given = fgv_trap_give(address, bytes, right == FGV_GRANULE_GUEST);
    }
    if (is_given) {
        memset(area->granules + first, right, end - first);
    }
    return is_given;
}

bool fgv_contents_give(struct fgv_area *area, uint64_t first, uint64_t end, enum fgv_granule right)
{
    if (area->first_given >= area->end_given) {
        area->first_given = first;
        area->end_given = end;
    }
    area->first_given = first < area->first_given ? first : area->first_given;
    area->end_given = end > area->end_given ? end : area->end_given;
    bool is_given = true;
    for (uint64_t granule = first; granule < end && is_given;) {
        const uint64_t next = run_end(area, granule, end);
        is_given = give_run(area, granule, next, right);
        granule = next;
    }
    return is_given;
}

/* Sends what the program has written. It may read it still. */
bool fgv_contents_send(struct fgv_area *area)
{
    bool is_sent = false;
    for (uint64_t granule = area->first_given; granule < area->end_given;) {
        const uint64_t next = run_end(area, granule, area->end_given);
        if (area->granules[granule] == FGV_GRANULE_GUEST) {
            fgv_trap_make_readable(fgv_area_address(area, granule), fgv_area_bytes(area, granule, next));
            fgv_contents_use_context(area);
            is_sent |= copy_granules(area, area->shadow, granule, next, true) == CUDA_SUCCESS;
        }
        granule = next;
    }
    return is_sent;
}

void fgv_contents_take(struct fgv_area *area)
{
    const uint64_t bytes = fgv_area_bytes(area, area->first_given, area->end_given);
    if (!fgv_trap_take(fgv_area_address(area, area->first_given), bytes)) {
        fgv_trap_take(area->address, area->bytes); /* too many pieces for the kernel: all of it is one */
    }
    memset(area->granules + area->first_given, FGV_GRANULE_DEVICE, area->end_given - area->first_given);
    area->first_given = area->end_given = 0;
}

void fgv_contents_fetch_to(const struct fgv_area *area, uint8_t *to)
{
    for (uint64_t granule = 0, next; granule < area->nr_granules; granule = next) {
        next = run_end(area, granule, area->nr_granules);
        if (area->granules[granule] == FGV_GRANULE_DEVICE && area->is_fresh) {
            memset(to + granule * FGV_GRANULE_BYTES, 0, fgv_area_bytes(area, granule, next));
        } else if (area->granules[granule] == FGV_GRANULE_DEVICE) {
            fetch(area, to, granule, next);
        }
    }
}

void fgv_contents_move_to(struct fgv_area *area, uint8_t *to)
{
    fgv_trap_take(area->address, area->bytes);
    for (uint64_t granule = 0, next; granule < area->nr_granules; granule = next) {
        next = run_end(area, granule, area->nr_granules);
        if (area->granules[granule] != FGV_GRANULE_DEVICE) {
            fgv_bulk_copy(to + granule * FGV_GRANULE_BYTES, shadow_of(area, granule),
                          fgv_area_bytes(area, granule, next));
        }
    }
    memset(area->granules, FGV_GRANULE_DEVICE, area->nr_granules);
    area->first_given = area->end_given = 0;
}
