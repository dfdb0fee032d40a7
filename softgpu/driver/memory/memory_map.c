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

#include "base/reach.h"
#include "base/state.h"
#include "base/view.h"
#include "kernel_abi.h"

#define FIRST_ADDRESS     (SGP_REACH_ADDRESS + RESERVATION_BYTES) /* before it an address and an offset may lie */
#define RESERVATION_BYTES (1ull << 36)
#define HUGE_PAGE_BYTES   (1ull << 21)

/* Sorted by address, disjoint, of all devices and of the host. */
static struct sgp_allocation *allocations;
static size_t nr_allocations;
static size_t max_allocations;
static uint64_t next_offset[SGP_MAX_DEVICES];
struct sgp_reservation *sgp_reservations;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

bool sgp_memory_reserve(struct sgp_device *device)
{
    const int flags = sgp_view_map_flag() | MAP_ANONYMOUS | MAP_NORESERVE;
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

/* The index of the first allocation that ends after the address. */
static size_t index_of(uintptr_t address)
{
    size_t low = 0, high = nr_allocations;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (allocations[middle].start + allocations[middle].mapped_bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct sgp_allocation *insert(const struct sgp_allocation *allocation)
{
    size_t i = index_of(allocation->start);

    if (nr_allocations == max_allocations) {
        size_t grown = max_allocations ? 2 * max_allocations : 64;
        struct sgp_allocation *moved = realloc(allocations, grown * sizeof(*moved));

        if (!moved) {
            return NULL;
        }
        allocations = moved;
        max_allocations = grown;
    }
    memmove(&allocations[i + 1], &allocations[i], (nr_allocations - i) * sizeof(*allocations));
    allocations[i] = *allocation;
    nr_allocations++;
    return &allocations[i];
}

/* A free place in [from, to) of the reservation; 0: none. The page after it stays free. */
static uint64_t find_gap(const struct sgp_device *device, uint64_t from, uint64_t to, uint64_t bytes,
                         uint64_t alignment)
{
    uintptr_t base = (uintptr_t)device->reservation;
    uintptr_t candidate = round_up(base + from, alignment);

    for (size_t i = index_of(base + from);; i++) {
        uintptr_t limit = base + to;

        if (i < nr_allocations && allocations[i].start < limit) {
            limit = allocations[i].start;
        }
        if (candidate + bytes + SGP_PAGE_BYTES <= limit) {
            return candidate;
        }
        if (i >= nr_allocations || limit == base + to) {
            return 0;
        }
        candidate = round_up(allocations[i].start + allocations[i].mapped_bytes + SGP_PAGE_BYTES, alignment);
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

/* Part of a reservation gets access, or none and loses its pages. */
static bool place_open(uint64_t place, uint64_t bytes)
{
    if (mprotect((void *)place, bytes, PROT_READ | PROT_WRITE)) {
        return false;
    }
    if (bytes >= HUGE_PAGE_BYTES) {
        madvise((void *)place, bytes, MADV_HUGEPAGE);
    }
    sgp_view_changed(place, bytes, PROT_READ | PROT_WRITE);
    return true;
}

static void place_close(uint64_t place, uint64_t bytes)
{
    madvise((void *)place, bytes, sgp_view_is_walled() ? MADV_REMOVE : MADV_DONTNEED);
    madvise((void *)place, bytes, MADV_NOHUGEPAGE);
    mprotect((void *)place, bytes, PROT_NONE);
    sgp_view_changed(place, bytes, PROT_NONE);
}

CUresult sgp_memory_new(struct CUctx_st *context, uint64_t bytes, enum sgp_memory_kind kind, void **address)
{
    struct sgp_device *device = context->device;
    uint64_t mapped = round_up(bytes, SGP_PAGE_BYTES), place;
    struct sgp_allocation allocation;

    if (bytes > device->memory_bytes || !sgp_state_reserve(device->state, mapped, device->memory_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    place = find_place(device, mapped);
    allocation = (struct sgp_allocation){
        .start = place, .bytes = bytes, .mapped_bytes = mapped, .kind = kind, .context = context};
    allocation.id = sgp_new_id();
    if (!place || !place_open(place, mapped)) {
        sgp_state_give_back(device->state, mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!insert(&allocation)) {
        place_close(place, mapped);
        sgp_state_give_back(device->state, mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (void *)place;
    return CUDA_SUCCESS;
}

struct sgp_allocation *sgp_memory_enter(const struct sgp_allocation *allocation)
{
    return insert(allocation);
}

CUresult sgp_memory_add_host(struct CUctx_st *context, void *start, uint64_t bytes, enum sgp_memory_kind kind,
                             unsigned int flags)
{
    struct sgp_allocation allocation = {
        .start = (uintptr_t)start, .bytes = bytes, .mapped_bytes = bytes, .kind = kind, .flags = flags};
    size_t i = index_of((uintptr_t)start);

    if (i < nr_allocations && allocations[i].start < (uintptr_t)start + bytes) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    allocation.context = context;
    allocation.id = sgp_new_id();
    if (!insert(&allocation)) {
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
    size_t i = (size_t)(allocation - allocations);

    if (allocation->kind == SGP_MEMORY_HOST) {
        sgp_view_outdate();
        sgp_reach_unmap((void *)allocation->start, round_up(allocation->bytes, SGP_PAGE_BYTES));
    } else if (allocation->kind == SGP_MEMORY_REGISTERED) {
        sgp_view_outdate();
        sgp_reach_remove(allocation->start, allocation->bytes);
    } else if (allocation->kind == SGP_MEMORY_MAPPED) { /* of which the physical memory counts */
        sgp_view_outdate();
        mmap((void *)allocation->start, allocation->mapped_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    } else {
        place_close(allocation->start, allocation->mapped_bytes);
        sgp_state_give_back(allocation->context->device->state, allocation->mapped_bytes);
    }
    if (allocation->owner && allocation->owner->deleted) {
        allocation->owner->deleted(allocation);
    }
    nr_allocations--;
    memmove(&allocations[i], &allocations[i + 1], (nr_allocations - i) * sizeof(*allocations));
}

void sgp_memory_delete_context(struct CUctx_st *context)
{
    for (size_t i = nr_allocations; i-- > 0;) {
        if (allocations[i].context == context) {
            sgp_memory_delete(&allocations[i]);
        }
    }
}

struct sgp_allocation *sgp_memory_find(uintptr_t address)
{
    size_t i = index_of(address);

    return i < nr_allocations && allocations[i].start <= address ? &allocations[i] : NULL;
}

struct sgp_allocation *sgp_memory_after(uintptr_t address)
{
    size_t i = index_of(address);

    return i < nr_allocations ? &allocations[i] : NULL;
}

struct sgp_allocation *sgp_memory_search(bool (*visit)(const struct sgp_allocation *allocation, const void *what),
                                         const void *what)
{
    for (size_t i = 0; i < nr_allocations; i++) {
        if (visit(&allocations[i], what)) {
            return &allocations[i];
        }
    }
    return NULL;
}

struct sgp_reservation *sgp_reservation_of(uintptr_t address, uint64_t bytes)
{
    for (struct sgp_reservation *one = sgp_reservations; one; one = one->next) {
        if (address >= one->start && address - one->start < one->bytes &&
            bytes <= one->bytes - (address - one->start)) {
            return one;
        }
    }
    return NULL;
}

bool sgp_memory_is_device_address(uintptr_t address)
{
    for (int i = 0; i < sgp_nr_devices; i++) {
        if (address - (uintptr_t)sgp_devices[i].reservation < sgp_devices[i].reservation_bytes) {
            return true;
        }
    }
    return sgp_reservation_of(address, 1);
}

/* Mapped memory side by side is one piece of memory to the program. */
static bool is_mapped_throughout(uintptr_t address, uint64_t bytes)
{
    const struct sgp_allocation *allocation = sgp_memory_find(address);

    while (allocation && allocation->kind == SGP_MEMORY_MAPPED && allocation->access) {
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

bool sgp_memory_range_ok(uintptr_t address, uint64_t bytes, bool is_device)
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
        return is_mapped_throughout(address, bytes);
    }
    if (bytes <= allocation->bytes - (address - allocation->start) &&
        address - allocation->start <= allocation->bytes) {
        return true;
    }
    /* A buffer of the host's may be registered in part. */
    return !is_device && allocation->kind == SGP_MEMORY_REGISTERED;
}
