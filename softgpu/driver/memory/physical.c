/*
 * Physical memory lies in memory files, so that it may be mapped at several places: what stays in this process in
 * stores (store.h), and what may be shared in a file of its own (shared_file.h), whose descriptor is what other
 * processes import.
 *
 * Wrong when: a program makes more shareable pieces than a process may have descriptors (CUDA_ERROR_OUT_OF_MEMORY).
 */
#include "memory/physical.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/state.h"
#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"

static bool is_whole_granules(uint64_t bytes)
{
    return bytes && bytes % SGP_GRANULARITY_BYTES == 0;
}

static void physical_destroy(void *object)
{
    struct sgp_physical *physical = object;

    if (!physical->share.is_exported) {
        sgp_state_give_back(physical->device->state, physical->bytes);
    }
    if (physical->place.store) {
        sgp_store_give_back(&physical->place);
    } else {
        sgp_share_end(&physical->share);
    }
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
    return *device ? (*device)->fault : CUDA_ERROR_INVALID_DEVICE;
}

static struct sgp_physical *physical_of_store(struct sgp_device *device, uint64_t bytes)
{
    struct sgp_physical *physical = calloc(1, sizeof(*physical));

    if (!physical || !sgp_object_add(physical, SGP_PHYSICAL, physical_destroy)) {
        free(physical);
        return NULL;
    }
    physical->device = device;
    physical->bytes = bytes;
    physical->nr_retained = 1;
    if (!sgp_store_take(&physical->place, bytes, device->memory_bytes)) {
        sgp_object_remove(physical);
        free(physical);
        return NULL;
    }
    physical->file = sgp_store_file(&physical->place);
    physical->offset = physical->place.offset;
    return physical;
}

static struct sgp_physical *physical_of_share(const struct sgp_share *share, uint64_t bytes)
{
    struct sgp_physical *physical = calloc(1, sizeof(*physical));

    if (!physical || !sgp_object_add(physical, SGP_PHYSICAL, physical_destroy)) {
        free(physical);
        return NULL;
    }
    physical->share = *share;
    physical->file = share->file;
    physical->offset = SGP_SHARED_HEAD_BYTES;
    physical->device = share->device;
    physical->bytes = bytes;
    physical->nr_retained = 1;
    return physical;
}

static struct sgp_physical *physical_new(struct sgp_device *device, uint64_t bytes, bool is_shareable)
{
    struct sgp_physical *physical;
    struct sgp_share share;

    if (!is_shareable) {
        return physical_of_store(device, bytes);
    }
    if (sgp_share_new(&share, SGP_SHARED_MEMORY, device, bytes)) {
        return NULL;
    }
    physical = physical_of_share(&share, bytes);
    if (!physical) {
        sgp_share_end(&share);
    }
    return physical;
}

SGP_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                                unsigned long long flags)
{
    struct sgp_device *device;
    struct sgp_physical *physical;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!handle || !is_whole_granules(size) || flags) {
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
    physical = physical_new(device, size, prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE);
    if (!physical) {
        sgp_state_give_back(device->state, size);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    physical->properties = *prop;
    *handle = (uintptr_t)physical;
    return sgp_leave(CUDA_SUCCESS);
}

CUresult sgp_enter_physical(CUmemGenericAllocationHandle handle, struct sgp_physical **physical)
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

void sgp_physical_drop(struct sgp_physical *physical)
{
    if (physical->object.nr_references == 1) {
        sgp_object_remove(physical);
    }
    sgp_object_release(physical);
}

uintptr_t sgp_physical_source(const struct sgp_physical *physical)
{
    return sgp_store_source(&physical->place);
}

SGP_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct sgp_physical *physical;
    CUresult result = sgp_enter_physical(handle, &physical);

    if (result) {
        return result;
    }
    if (--physical->nr_retained == 0) {
        sgp_physical_drop(physical);
    }
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
        *granularity = SGP_GRANULARITY_BYTES;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                           CUmemGenericAllocationHandle handle)
{
    struct sgp_physical *physical;
    CUresult result = sgp_with_argument(sgp_enter_physical(handle, &physical), prop);

    if (result) {
        return result;
    }
    *prop = physical->properties;
    return sgp_leave(CUDA_SUCCESS);
}

/* ---- sharing ---- */

/* An importer cannot pass memory on: it has no handle type. */
SGP_EXPORT CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType handleType, unsigned long long flags)
{
    struct sgp_physical *physical;
    int file;
    CUresult result = sgp_with_argument(sgp_enter_physical(handle, &physical), shareableHandle);

    if (result) {
        return result;
    }
    if (flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        physical->properties.requestedHandleTypes != handleType) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_share_export(&physical->share, physical->bytes);
    if (result) {
        return sgp_leave(result);
    }
    file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        return sgp_leave(CUDA_ERROR_OPERATING_SYSTEM);
    }
    *(int *)shareableHandle = file;
    return sgp_leave(CUDA_SUCCESS);
}

/* Memory that somebody else made. */
static CUresult physical_import(int given, const struct sgp_shared_head *head, struct sgp_physical **imported)
{
    struct sgp_share share;
    int file = fcntl(given, F_DUPFD_CLOEXEC, 0);
    CUresult result;

    if (file < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    result = sgp_share_import(&share, file, head);
    if (result) {
        close(file);
        return result;
    }
    *imported = physical_of_share(&share, head->bytes);
    if (!*imported) {
        sgp_share_end(&share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*imported)->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    (*imported)->properties.location =
        (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = share.device->ordinal};
    return CUDA_SUCCESS;
}

/* What is no descriptor of this driver's is an error that says nothing, as with NVIDIA's. */
SGP_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                                   CUmemAllocationHandleType shHandleType)
{
    struct sgp_shared_head head;
    struct sgp_physical *physical;
    CUresult result = sgp_with_argument(sgp_enter_driver(), handle);

    if (result) {
        return result;
    }
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_shared_read((int)(uintptr_t)osHandle, &head)) {
        return sgp_leave(CUDA_ERROR_UNKNOWN);
    }
    if (head.kind != SGP_SHARED_MEMORY || !is_whole_granules(head.bytes)) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    result = physical_import((int)(uintptr_t)osHandle, &head, &physical);
    if (result) {
        return sgp_leave(result);
    }
    *handle = (uintptr_t)physical;
    return sgp_leave(CUDA_SUCCESS);
}
