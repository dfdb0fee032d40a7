/*
 * Virtual memory: addresses without memory, and physical memory mapped into them.
 *
 * Reserved addresses are mapped without access, where the program asks for them or wherever the kernel of the host has
 * room. Physical memory may be mapped at several places, whole as on a GPU. Mappings stand among the other allocations.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/reach.h"
#include "base/view.h"
#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "memory/physical.h"

#define MAX_ADDRESS_BYTES (UINT64_C(1) << 46)

static bool is_whole_pages(uint64_t value)
{
    return value % SGP_GRANULARITY_BYTES == 0;
}

static void *reserve(uint64_t wanted, uint64_t bytes, uint64_t alignment)
{
    uint8_t *at, *start;

    if (wanted && wanted % alignment == 0) {
        at = mmap((void *)wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                  -1, 0);
        if (at == (void *)wanted) {
            sgp_reach_add(wanted, bytes);
            return at;
        }
        if (at != MAP_FAILED) {
            munmap(at, bytes);
        }
    }
    at = sgp_reach_map(bytes + alignment, PROT_NONE, MAP_NORESERVE);
    if (!at) {
        return NULL;
    }
    start = (uint8_t *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
    if (start > at) {
        munmap(at, (size_t)(start - at));
    }
    munmap(start + bytes, alignment - (size_t)(start - at));
    return start;
}

SGP_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                        unsigned long long flags)
{
    struct sgp_reservation *made;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!ptr || !size || !is_whole_pages(size) || flags || (alignment & (alignment - 1))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (alignment < SGP_GRANULARITY_BYTES) {
        alignment = SGP_GRANULARITY_BYTES;
    }
    made = size <= MAX_ADDRESS_BYTES && alignment <= MAX_ADDRESS_BYTES ? calloc(1, sizeof(*made)) : NULL;
    if (!made) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->start = (uintptr_t)reserve(addr, size, alignment);
    if (!made->start) {
        free(made);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->bytes = size;
    if (!sgp_ranges_add(&sgp_reservations, &made->range)) {
        sgp_reach_unmap((void *)made->start, size);
        free(made);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *ptr = made->start;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    struct sgp_reservation *found;
    const struct sgp_allocation *after;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    found = (struct sgp_reservation *)sgp_ranges_find(&sgp_reservations, ptr);
    after = sgp_memory_after(ptr);
    if (!found || found->start != ptr || found->bytes != size || (after && after->start < ptr + size)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE); /* none, or something is mapped there */
    }
    sgp_ranges_remove(&sgp_reservations, &found->range);
    sgp_reach_unmap((void *)found->start, found->bytes);
    free(found);
    return sgp_leave(CUDA_SUCCESS);
}

static void unmapped(struct sgp_allocation *mapping)
{
    sgp_physical_drop(mapping->physical);
}

static const struct sgp_memory_owner owner = {.deleted = unmapped};

SGP_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags)
{
    struct sgp_physical *physical;
    struct sgp_allocation mapping;
    const struct sgp_allocation *after;
    CUresult result = sgp_enter_physical(handle, &physical);

    if (result) {
        return result;
    }
    after = sgp_memory_after(ptr);
    if (!size || !is_whole_pages(ptr) || !is_whole_pages(size) || !is_whole_pages(offset) || flags ||
        offset > physical->bytes || size > physical->bytes - offset || !sgp_reservation_of(ptr, size) ||
        (after && after->start < ptr + size)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (size != physical->bytes) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    mapping = (struct sgp_allocation){.start = ptr,
                                      .bytes = size,
                                      .mapped_bytes = size,
                                      .kind = SGP_MEMORY_MAPPED,
                                      .owner = &owner,
                                      .id = sgp_new_id(),
                                      .physical = physical,
                                      .source = sgp_physical_source(physical)};
    if (!sgp_memory_enter(&mapping)) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    sgp_object_keep(physical);
    if (mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, (off_t)physical->offset) ==
        MAP_FAILED) {
        sgp_memory_delete(sgp_memory_find(ptr));
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (mapping.source) {
        sgp_view_mapped(ptr, size, mapping.source);
    }
    return sgp_leave(CUDA_SUCCESS);
}

/* Whether whole mappings side by side fill the range. */
static bool is_filled(uintptr_t address, uint64_t bytes)
{
    while (bytes) {
        const struct sgp_allocation *mapping = sgp_memory_find(address);

        if (!mapping || mapping->kind != SGP_MEMORY_MAPPED || mapping->start != address || mapping->bytes > bytes) {
            return false;
        }
        address += mapping->bytes;
        bytes -= mapping->bytes;
    }
    return true;
}

SGP_EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!size || !is_filled(ptr, size)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (uint64_t done = 0, bytes; done < size; done += bytes) {
        struct sgp_allocation *mapping = sgp_memory_find(ptr + done);

        bytes = mapping->bytes;
        sgp_memory_delete(mapping);
    }
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult protect(uintptr_t address, uint64_t bytes, CUmemAccess_flags access, bool is_in_view)
{
    const int protection = (access & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : 0) |
                           (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0);

    if (mprotect((void *)address, bytes, protection)) {
        sgp_view_outdate();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (is_in_view) {
        sgp_view_changed(address, bytes, protection);
    } else {
        sgp_view_outdate();
    }
    return CUDA_SUCCESS;
}

/* How many bytes from here on, in whole mappings, may be used like the first of them. */
static uint64_t nr_alike(uintptr_t address, uint64_t bytes, CUmemAccess_flags *access, bool *is_in_view)
{
    const struct sgp_allocation *mapping = sgp_memory_find(address);
    uint64_t nr = 0;

    *access = sgp_memory_access(mapping);
    *is_in_view = true;
    while (mapping && sgp_memory_access(mapping) == *access) {
        *is_in_view = *is_in_view && mapping->source;
        nr += mapping->bytes;
        mapping = nr < bytes ? sgp_memory_find(address + nr) : NULL;
    }
    return nr;
}

static CUresult set_access(uintptr_t address, uint64_t bytes, int device, CUmemAccess_flags access)
{
    CUresult result = CUDA_SUCCESS;

    for (uint64_t done = 0; done < bytes;) {
        struct sgp_allocation *mapping = sgp_memory_find(address + done);

        mapping->access[device] = access;
        done += mapping->bytes;
    }
    for (uint64_t done = 0, nr; done < bytes && !result; done += nr) {
        CUmemAccess_flags all;
        bool is_in_view;

        nr = nr_alike(address + done, bytes - done, &all, &is_in_view);
        result = protect(address + done, nr, all, is_in_view);
    }
    return result;
}

SGP_EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!size || !desc || !count || !is_filled(ptr, size)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count && !result; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sgp_device_find(desc[i].location.id)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                   desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            result = set_access(ptr, size, desc[i].location.id, desc[i].flags);
        }
    }
    return sgp_leave(result);
}

static const struct sgp_allocation *mapping_at(uintptr_t address)
{
    const struct sgp_allocation *mapping = sgp_memory_find(address);

    return mapping && mapping->kind == SGP_MEMORY_MAPPED ? mapping : NULL;
}

SGP_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    const struct sgp_allocation *mapping;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    mapping = mapping_at(ptr);
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sgp_device_find(location->id) ||
        !mapping) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = mapping->access[location->id];
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    const struct sgp_allocation *mapping;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    mapping = mapping_at((uintptr_t)addr);
    if (!handle || !mapping) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (mapping->physical->nr_retained++ == 0) {
        sgp_object_keep(mapping->physical);
    }
    *handle = (uintptr_t)mapping->physical;
    return sgp_leave(CUDA_SUCCESS);
}

/* There are no dma-bufs of this memory. */
SGP_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                                  CUmemRangeHandleType handleType, unsigned long long flags)
{
    CUresult result = sgp_enter_driver();

    (void)dptr;
    (void)handleType;
    (void)flags;
    if (result) {
        return result;
    }
    return sgp_leave(handle && size ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
}
