/*
 * Virtual memory: addresses without memory, memory without addresses, and the one mapped into the other.
 *
 * Reserved addresses are mapped without access, wherever the kernel of the host has room for them; physical memory is a
 * memory file, of which parts may be mapped at several places. Mappings stand among the other allocations.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/reach.h"
#include "base/state.h"
#include "base/view.h"
#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"

#define GRANULARITY_BYTES (UINT64_C(1) << 21)
#define MAX_ADDRESS_BYTES (UINT64_C(1) << 46)

struct sgp_physical {
    struct sgp_object object; /* each mapping holds it, and so does the program */
    struct sgp_device *device;
    uint64_t bytes;
    uint32_t nr_retained; /* by the program: the handle is good while this is not 0 */
    int file;
    CUmemAllocationProp properties;
};

static bool is_whole_pages(uint64_t value)
{
    return value % GRANULARITY_BYTES == 0;
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
    if (alignment < GRANULARITY_BYTES) {
        alignment = GRANULARITY_BYTES;
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

static void physical_destroy(void *object)
{
    struct sgp_physical *physical = object;

    close(physical->file);
    sgp_state_give_back(physical->device->state, physical->bytes);
    free(physical);
}

static CUresult check_properties(const CUmemAllocationProp *prop, struct sgp_device **device)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *device = sgp_device_find(prop->location.id);
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static struct sgp_physical *physical_new(struct sgp_device *device, uint64_t bytes)
{
    struct sgp_physical *physical = calloc(1, sizeof(*physical));

    if (!physical) {
        return NULL;
    }
    physical->file = memfd_create("softgpu", MFD_CLOEXEC);
    if (physical->file >= 0 && ftruncate(physical->file, (off_t)bytes) == 0 &&
        sgp_object_add(physical, SGP_PHYSICAL, physical_destroy)) {
        physical->device = device;
        physical->bytes = bytes;
        physical->nr_retained = 1;
        return physical;
    }
    if (physical->file >= 0) {
        close(physical->file);
    }
    free(physical);
    return NULL;
}

/* Memory that could be shared is made as any other: sharing it is what is refused. */
SGP_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                                unsigned long long flags)
{
    struct sgp_device *device;
    struct sgp_physical *physical;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!handle || !size || !is_whole_pages(size) || flags) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = check_properties(prop, &device);
    if (!result && (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result) {
        return sgp_leave(result);
    }
    if (!sgp_memory_take(device, size)) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    physical = physical_new(device, size);
    if (!physical) {
        sgp_state_give_back(device->state, size);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    physical->properties = *prop;
    *handle = (uintptr_t)physical;
    return sgp_leave(CUDA_SUCCESS);
}

/* With the lock, and a handle that is the program's; on error nothing is locked. */
static CUresult enter_physical(CUmemGenericAllocationHandle handle, struct sgp_physical **physical)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    *physical = (struct sgp_physical *)(uintptr_t)handle;
    if (!sgp_object_is(*physical, SGP_PHYSICAL) || !(*physical)->nr_retained) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

static void drop(struct sgp_physical *physical)
{
    if (physical->object.nr_references == 1) {
        sgp_object_remove(physical);
    }
    sgp_object_release(physical);
}

static void unmapped(struct sgp_allocation *mapping)
{
    drop(mapping->physical);
}

static const struct sgp_memory_owner owner = {.deleted = unmapped};

SGP_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct sgp_physical *physical;
    CUresult result = enter_physical(handle, &physical);

    if (result) {
        return result;
    }
    if (--physical->nr_retained == 0) {
        drop(physical);
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags)
{
    struct sgp_physical *physical;
    struct sgp_allocation mapping;
    const struct sgp_allocation *after;
    CUresult result = enter_physical(handle, &physical);

    if (result) {
        return result;
    }
    after = sgp_memory_after(ptr);
    if (!size || !is_whole_pages(ptr) || !is_whole_pages(size) || !is_whole_pages(offset) || flags ||
        offset > physical->bytes || size > physical->bytes - offset || !sgp_reservation_of(ptr, size) ||
        (after && after->start < ptr + size)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    mapping = (struct sgp_allocation){.start = ptr,
                                      .bytes = size,
                                      .mapped_bytes = size,
                                      .kind = SGP_MEMORY_MAPPED,
                                      .owner = &owner,
                                      .id = sgp_new_id(),
                                      .physical = physical,
                                      .physical_offset = offset};
    if (!sgp_memory_enter(&mapping)) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    sgp_object_keep(physical);
    if (mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, (off_t)offset) == MAP_FAILED) {
        sgp_memory_delete(sgp_memory_find(ptr));
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
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

static CUresult set_access(uintptr_t address, uint64_t bytes, CUmemAccess_flags access)
{
    const int protection = (access & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : 0) |
                           (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0);

    sgp_view_outdate();
    if (mprotect((void *)address, bytes, protection)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint64_t done = 0; done < bytes;) {
        struct sgp_allocation *mapping = sgp_memory_find(address + done);

        mapping->access = access;
        done += mapping->bytes;
    }
    return CUDA_SUCCESS;
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
            result = set_access(ptr, size, desc[i].flags);
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
    *flags = mapping->access;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                                  CUmemAllocationGranularity_flags option)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!granularity || (unsigned int)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = check_properties(prop, &device);
    if (!result) {
        *granularity = GRANULARITY_BYTES;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                           CUmemGenericAllocationHandle handle)
{
    struct sgp_physical *physical;
    CUresult result = sgp_with_argument(enter_physical(handle, &physical), prop);

    if (result) {
        return result;
    }
    *prop = physical->properties;
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
