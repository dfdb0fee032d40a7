/*
 * Device memory is memory of this process within the reach of kernels (reach.h): one reservation per device, without
 * access. An allocation is a part of it that gets access, and gives its pages back when it loses it; it is followed by
 * a page that stays without. A kernel that leaves an allocation at its end faults at once; new addresses are handed out
 * in a round, so that one that uses freed memory faults, too.
 *
 * Wrong when: a program holds more than some 30,000 allocations: Linux ends a process's mappings at vm.max_map_count,
 * and it sees CUDA_ERROR_OUT_OF_MEMORY.
 */
#include "memory/memory_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/reach.h"
#include "base/state.h"
#include "base/view.h"
#include "kernel_abi.h"

#define FIRST_ADDRESS     (SGP_REACH_ADDRESS + RESERVATION_BYTES) /* before it an address and an offset may lie */
#define RESERVATION_BYTES (1ull << 36)
#define HUGE_PAGE_BYTES   (1ull << 21)

static struct sgp_ranges allocations; /* of all devices and of the host */
static uint64_t next_offset[SGP_MAX_DEVICES];
struct sgp_ranges sgp_reservations;
bool (*sgp_memory_trim)(struct sgp_device *device);

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static int reservation_flags(void)
{
    return sgp_view_map_flag() | MAP_ANONYMOUS | MAP_NORESERVE;
}

bool sgp_memory_reserve(struct sgp_device *device)
{
    const int flags = reservation_flags();
    uint64_t bytes = RESERVATION_BYTES;
    void *at;

    while (bytes < 2 * device->memory_bytes) {
        bytes *= 2;
    }
    for (; bytes >= device->memory_bytes; bytes /= 2) {
        uint64_t wanted = FIRST_ADDRESS + (uint64_t)device->ordinal * bytes;

        at = mmap((void *)wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == MAP_FAILED) {
            at = mmap(NULL, bytes, PROT_NONE, flags, -1, 0);
        }
        if (at != MAP_FAILED) {
            madvise(at, bytes, MADV_NOHUGEPAGE); /* but for allocations that fill huge pages */
            sgp_reach_add((uintptr_t)at, bytes);
            device->reservation = at;
            device->reservation_bytes = bytes;
            return true;
        }
    }
    return false;
}

static uintptr_t end_of(const struct sgp_allocation *allocation)
{
    return allocation->start + allocation->mapped_bytes;
}

struct sgp_allocation *sgp_memory_find(uintptr_t address)
{
    return (struct sgp_allocation *)sgp_ranges_find(&allocations, address);
}

struct sgp_allocation *sgp_memory_after(uintptr_t address)
{
    return (struct sgp_allocation *)sgp_ranges_after(&allocations, address);
}

struct sgp_allocation *sgp_memory_enter(const struct sgp_allocation *allocation)
{
    struct sgp_allocation *entered = malloc(sizeof(*entered));

    if (!entered) {
        return NULL;
    }
    *entered = *allocation;
    if (!sgp_ranges_add(&allocations, &entered->range)) {
        free(entered);
        return NULL;
    }
    return entered;
}

/* A free place in [from, to) of the reservation; 0: none. The page after it stays free. */
static uint64_t find_gap(const struct sgp_device *device, uint64_t from, uint64_t to, uint64_t bytes,
                         uint64_t alignment)
{
    uintptr_t base = (uintptr_t)device->reservation;
    uintptr_t candidate = round_up(base + from, alignment);

    for (;;) {
        const struct sgp_allocation *next = sgp_memory_after(candidate);
        uintptr_t limit = next && next->start < base + to ? next->start : base + to;

        if (candidate + bytes + SGP_PAGE_BYTES <= limit) {
            return candidate;
        }
        if (limit == base + to) {
            return 0;
        }
        candidate = round_up(end_of(next) + SGP_PAGE_BYTES, alignment);
    }
}

static uint64_t find_place(const struct sgp_device *device, uint64_t bytes)
{
    uint64_t alignment = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : SGP_PAGE_BYTES;
    uint64_t from = next_offset[device->ordinal];
    uint64_t place = find_gap(device, from, device->reservation_bytes, bytes, alignment);

    if (!place) {
        place = find_gap(device, 0, device->reservation_bytes, bytes, alignment);
    }
    if (place) {
        next_offset[device->ordinal] = place + bytes + SGP_PAGE_BYTES - (uintptr_t)device->reservation;
    }
    return place;
}

/* Part of a reservation gets access, or is that of a file. */
static bool place_open(const struct sgp_allocation *allocation)
{
    void *place = (void *)allocation->start;
    uint64_t bytes = allocation->mapped_bytes;

    if (allocation->share) {
        off_t offset = (off_t)(SGP_SHARED_HEAD_BYTES + allocation->share_offset);

        sgp_view_outdate();
        return mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, allocation->share->file, offset) !=
               MAP_FAILED;
    }
    if (mprotect(place, bytes, PROT_READ | PROT_WRITE)) {
        return false;
    }
    if (bytes >= HUGE_PAGE_BYTES) {
        madvise(place, bytes, MADV_HUGEPAGE);
    }
    sgp_view_changed(allocation->start, bytes, PROT_READ | PROT_WRITE);
    return true;
}

/* It is without access again, and without pages. */
static void place_close(const struct sgp_allocation *allocation)
{
    void *place = (void *)allocation->start;
    uint64_t bytes = allocation->mapped_bytes;

    if (allocation->share) {
        sgp_view_outdate();
        mmap(place, bytes, PROT_NONE, reservation_flags() | MAP_FIXED, -1, 0);
        madvise(place, bytes, MADV_NOHUGEPAGE);
        return;
    }
    madvise(place, bytes, sgp_view_is_walled() ? MADV_REMOVE : MADV_DONTNEED);
    madvise(place, bytes, MADV_NOHUGEPAGE);
    mprotect(place, bytes, PROT_NONE);
    sgp_view_changed(allocation->start, bytes, PROT_NONE);
}

bool sgp_memory_take(struct sgp_device *device, uint64_t bytes)
{
    return sgp_state_reserve(device->state, bytes, device->memory_bytes) ||
           (bytes <= device->memory_bytes && sgp_memory_trim(device) &&
            sgp_state_reserve(device->state, bytes, device->memory_bytes));
}

/* What an allocation counts for this process goes. */
static void uncount(const struct sgp_allocation *allocation)
{
    struct sgp_state *state = allocation->context->device->state;

    if (allocation->is_imported) {
        return;
    }
    if (allocation->share && allocation->share->is_exported) {
        if (!allocation->pool) {
            return; /* all of the file, with which the count goes */
        }
        sgp_state_move(state, &allocation->share->head.holder, -(int64_t)allocation->mapped_bytes);
    }
    sgp_state_give_back(state, allocation->mapped_bytes);
}

CUresult sgp_memory_new_in(struct CUctx_st *context, uint64_t bytes, enum sgp_memory_kind kind, struct sgp_share *share,
                           uint64_t offset, bool is_imported, void **address)
{
    struct sgp_device *device = context->device;
    struct sgp_allocation allocation = {.mapped_bytes = round_up(bytes, SGP_PAGE_BYTES),
                                        .bytes = bytes,
                                        .kind = kind,
                                        .context = context,
                                        .share = share,
                                        .share_offset = offset,
                                        .is_imported = is_imported};

    if (bytes > device->reservation_bytes ||
        (!is_imported && (bytes > device->memory_bytes || !sgp_memory_take(device, allocation.mapped_bytes)))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.start = find_place(device, allocation.mapped_bytes);
    allocation.id = sgp_new_id();
    if (!allocation.start || !place_open(&allocation)) {
        if (!is_imported) {
            sgp_state_give_back(device->state, allocation.mapped_bytes);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sgp_memory_enter(&allocation)) {
        place_close(&allocation);
        if (!is_imported) {
            sgp_state_give_back(device->state, allocation.mapped_bytes);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (void *)allocation.start;
    return CUDA_SUCCESS;
}

CUresult sgp_memory_new(struct CUctx_st *context, uint64_t bytes, enum sgp_memory_kind kind, void **address)
{
    return sgp_memory_new_in(context, bytes, kind, NULL, 0, false, address);
}

bool sgp_memory_move_into(struct sgp_allocation *allocation, struct sgp_share *share)
{
    for (uint64_t done = 0; done < allocation->mapped_bytes;) {
        ssize_t written = pwrite(share->file, (uint8_t *)allocation->start + done, allocation->mapped_bytes - done,
                                 (off_t)(SGP_SHARED_HEAD_BYTES + done));

        if (written <= 0) {
            return false;
        }
        done += (uint64_t)written;
    }
    allocation->share = share;
    if (!place_open(allocation)) {
        allocation->share = NULL;
        return false;
    }
    return true;
}

CUresult sgp_memory_add_host(struct CUctx_st *context, void *start, uint64_t bytes, enum sgp_memory_kind kind,
                             unsigned int flags)
{
    struct sgp_allocation allocation = {
        .start = (uintptr_t)start, .bytes = bytes, .mapped_bytes = bytes, .kind = kind, .flags = flags};
    const struct sgp_allocation *after = sgp_memory_after((uintptr_t)start);

    if (after && after->start < (uintptr_t)start + bytes) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    allocation.context = context;
    allocation.id = sgp_new_id();
    if (!sgp_memory_enter(&allocation)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_view_outdate();
    if (kind == SGP_MEMORY_REGISTERED) {
        sgp_reach_add(allocation.start, bytes);
    }
    return CUDA_SUCCESS;
}

void sgp_memory_delete(struct sgp_allocation *allocation)
{
    if (allocation->kind == SGP_MEMORY_HOST) {
        sgp_view_outdate();
        sgp_reach_unmap((void *)allocation->start, round_up(allocation->bytes, SGP_PAGE_BYTES));
    } else if (allocation->kind == SGP_MEMORY_REGISTERED) {
        sgp_view_outdate();
        sgp_reach_remove(allocation->start, allocation->bytes);
    } else if (allocation->kind == SGP_MEMORY_MAPPED) { /* of which the physical memory counts */
        if (allocation->source) {
            sgp_view_unmapped(allocation->start, allocation->mapped_bytes);
        } else {
            sgp_view_outdate();
        }
        mmap((void *)allocation->start, allocation->mapped_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    } else {
        place_close(allocation);
        uncount(allocation);
    }
    sgp_ranges_remove(&allocations, &allocation->range);
    if (allocation->owner && allocation->owner->deleted) {
        allocation->owner->deleted(allocation);
    }
    free(allocation);
}

void sgp_memory_delete_context(struct CUctx_st *context)
{
    struct sgp_allocation *allocation = sgp_memory_after(0);

    while (allocation) {
        uintptr_t end = end_of(allocation);

        if (allocation->context == context) {
            sgp_memory_delete(allocation);
        }
        allocation = sgp_memory_after(end);
    }
}

const struct sgp_reservation *sgp_reservation_of(uintptr_t address, uint64_t bytes)
{
    const struct sgp_reservation *one = (const struct sgp_reservation *)sgp_ranges_find(&sgp_reservations, address);

    return one && bytes <= one->bytes - (address - one->start) ? one : NULL;
}

bool sgp_memory_is_in_device(uintptr_t address)
{
    for (int i = 0; i < sgp_nr_devices; i++) {
        if (address - (uintptr_t)sgp_devices[i].reservation < sgp_devices[i].reservation_bytes) {
            return true;
        }
    }
    return false;
}

bool sgp_memory_is_device_address(uintptr_t address)
{
    return sgp_memory_is_in_device(address) || sgp_reservation_of(address, 1);
}

CUmemAccess_flags sgp_memory_access(const struct sgp_allocation *mapping)
{
    unsigned int access = CU_MEM_ACCESS_FLAGS_PROT_NONE;

    for (int i = 0; i < sgp_nr_devices; i++) {
        access |= mapping->access[i];
    }
    return (CUmemAccess_flags)access;
}

/* Mapped memory side by side is one piece of memory to the program. */
static bool is_mapped_throughout(uintptr_t address, uint64_t bytes, CUmemAccess_flags access)
{
    const struct sgp_allocation *allocation = sgp_memory_find(address);

    while (allocation && allocation->kind == SGP_MEMORY_MAPPED && (sgp_memory_access(allocation) & access) == access) {
        uint64_t left = allocation->start + allocation->bytes - address;

        if (bytes <= left) {
            return true;
        }
        bytes -= left;
        address += left;
        allocation = sgp_memory_find(address);
    }
    return false;
}

bool sgp_memory_range_ok(uintptr_t address, uint64_t bytes, bool is_device, CUmemAccess_flags access)
{
    const struct sgp_allocation *allocation = sgp_memory_find(address);

    /* What nobody allocated or registered may be pageable host memory, which the caller answers for. */
    if (!allocation) {
        return !is_device && address && !sgp_memory_is_device_address(address);
    }
    if (allocation->is_kept) {
        return false;
    }
    if (allocation->kind == SGP_MEMORY_MAPPED) {
        return is_mapped_throughout(address, bytes, access);
    }
    if (bytes <= allocation->bytes - (address - allocation->start) &&
        address - allocation->start <= allocation->bytes) {
        return true;
    }
    /* A buffer of the host's may be registered in part. */
    return !is_device && allocation->kind == SGP_MEMORY_REGISTERED;
}
