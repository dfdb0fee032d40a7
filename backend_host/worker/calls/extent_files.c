/* See extent_files.h. */
#include "calls/extent_files.h"

#include <unistd.h>

#include "base/log.h"
#include "calls/span.h"
#include "client/ranges.h"
#include "client/state.h"
#include "page/account.h"
#include "page/bell.h"
#include "page/room.h"
#include "page/shares.h"

static bool has_calls(const struct fgw_worker *worker)
{
    return worker->driver.cuMemExportToShareableHandle && worker->driver.cuMemImportFromShareableHandle &&
           worker->driver.cuMemcpyDtoDAsync_v2 && worker->driver.cuStreamCreate && worker->driver.cuStreamSynchronize &&
           worker->driver.cuStreamDestroy_v2;
}

static CUresult allow(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return worker->driver.cuMemSetAccess(address, bytes, &access, 1);
}

/* In a stream of its own: the client may be capturing in all of its own. */
static CUresult copy(struct fgw_worker *worker, uint64_t to, uint64_t from, uint64_t bytes)
{
    const uint64_t begun_ns = fgw_clock_ns();
    CUstream stream;
    CUresult result = worker->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = worker->driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuStreamSynchronize(stream);
    }
    worker->driver.cuStreamDestroy_v2(stream);
    fgw_grant_charge(&worker->grantee, begun_ns, fgw_clock_ns());
    return result;
}

/* The bytes of an extent in other memory, by addresses that are the client's for as long as that takes. */
static CUresult copy_into(struct fgw_worker *worker, CUmemGenericAllocationHandle native,
                          const struct fgw_range *extent)
{
    uint64_t address;
    if (!fgw_span_take(worker, extent->bytes, &address)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = worker->driver.cuMemMap(address, extent->bytes, 0, native, 0);
    if (result == CUDA_SUCCESS) {
        result = allow(worker, address, extent->bytes);
        if (result == CUDA_SUCCESS) {
            result = copy(worker, address, extent->address, extent->bytes);
        }
        worker->driver.cuMemUnmap(address, extent->bytes);
    }
    fgw_span_give(worker, address);
    return result;
}

/* Puts it where the extent is. If the driver lets no memory lie there any more, the client's next access is a fault. */
static CUresult put_in_place(struct fgw_worker *worker, CUmemGenericAllocationHandle native, struct fgw_range *extent)
{
    CUresult result = worker->driver.cuMemUnmap(extent->address, extent->bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = worker->driver.cuMemMap(extent->address, extent->bytes, 0, native, 0);
    if (result != CUDA_SUCCESS) {
        worker->driver.cuMemMap(extent->address, extent->bytes, 0, extent->owner, 0);
        allow(worker, extent->address, extent->bytes);
        return result;
    }
    worker->driver.cuMemRelease(extent->owner);
    extent->owner = native;
    return allow(worker, extent->address, extent->bytes);
}

static CUresult make_anew(struct fgw_worker *worker, struct fgw_range *extent)
{
    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}};
    CUmemGenericAllocationHandle native;
    CUresult result = worker->driver.cuMemCreate(&native, extent->bytes, &property, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = copy_into(worker, native, extent);
    if (result == CUDA_SUCCESS) {
        fgw_span_lock();
        result = put_in_place(worker, native, extent);
        fgw_span_unlock();
    }
    if (extent->owner != native) {
        worker->driver.cuMemRelease(native);
    }
    return result;
}

/* What was made to be given away has a descriptor at once; of anything else the driver says that it has none. */
static CUresult open_one(struct fgw_worker *worker, struct fgw_range *extent, int *file)
{
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    *file = -1;
    CUresult result = worker->driver.cuMemExportToShareableHandle(file, extent->owner, type, 0);
    if (result != CUDA_ERROR_INVALID_VALUE) {
        return result;
    }
    result = make_anew(worker, extent);
    return result == CUDA_SUCCESS ? worker->driver.cuMemExportToShareableHandle(file, extent->owner, type, 0) : result;
}

CUresult fgw_extent_files_open(struct fgw_worker *worker, uint64_t address, uint64_t bytes, int *files,
                               uint32_t *nr_files)
{
    struct fgw_ranges *extents = &worker->calls->span.extents;
    const uint32_t first = fgw_ranges_after(extents, address - 1);
    CUresult result = has_calls(worker) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    *nr_files = 0;
    for (uint32_t i = first; result == CUDA_SUCCESS && i < extents->nr && extents->items[i].address - address < bytes;
         i++) {
        result = *nr_files < FGW_MAX_SHARED_FILES ? open_one(worker, &extents->items[i], &files[*nr_files])
                                                  : CUDA_ERROR_OUT_OF_MEMORY;
        *nr_files += result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        fgw_extent_files_close(files, *nr_files);
        *nr_files = 0;
    }
    return result;
}

void fgw_extent_files_close(const int *files, uint32_t nr_files)
{
    for (uint32_t i = 0; i < nr_files; i++) {
        close(files[i]);
    }
}

static bool make_room(struct fgw_ranges *extents)
{
    fgw_span_lock();
    const bool has_room = fgw_ranges_make_room(extents, FGW_MAX_DEVICE_RANGES);
    fgw_span_unlock();
    return has_room;
}

static CUresult map_one(struct fgw_worker *worker, uint64_t address, uint64_t bytes, int file)
{
    struct fgw_ranges *extents = &worker->calls->span.extents;
    CUmemGenericAllocationHandle native;
    if (!make_room(extents)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = worker->driver.cuMemImportFromShareableHandle(&native, (void *)(uintptr_t)file,
                                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemMap(address, bytes, 0, native, 0);
        if (result != CUDA_SUCCESS) {
            worker->driver.cuMemRelease(native);
        }
    }
    if (result != CUDA_SUCCESS) {
        return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_INVALID_VALUE;
    }
    fgw_room_hold(&worker->grantee, bytes);
    fgw_span_lock();
    fgw_ranges_insert(extents, (struct fgw_range){.address = address, .bytes = bytes, .owner = native});
    fgw_span_unlock();
    return CUDA_SUCCESS;
}

CUresult fgw_extent_files_map(struct fgw_worker *worker, uint64_t address, uint64_t bytes, const struct fgw_key *key,
                              const int *files, uint32_t nr_files)
{
    const uint64_t most_bytes = fgw_span_extent_bytes(bytes, nr_files);
    uint64_t mapped_bytes = 0, dropped_bytes = 0;
    CUresult result = !has_calls(worker) ? CUDA_ERROR_NOT_SUPPORTED
                      : most_bytes == 0  ? CUDA_ERROR_INVALID_VALUE
                                         : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS || !fgw_room_allocate(&worker->grantee, bytes, key->words[0])) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; result == CUDA_SUCCESS && mapped_bytes < bytes; i++) {
        const uint64_t left_bytes = bytes - mapped_bytes;
        const uint64_t extent_bytes = left_bytes < most_bytes ? left_bytes : most_bytes;
        result = map_one(worker, address + mapped_bytes, extent_bytes, files[i]);
        mapped_bytes += result == CUDA_SUCCESS ? extent_bytes : 0;
    }
    if (result == CUDA_SUCCESS) {
        result = allow(worker, address, bytes);
    }
    if (result != CUDA_SUCCESS) {
        fgw_share_leave(&worker->grantee, key->words[0]);
        fgw_room_deallocate(&worker->grantee, bytes - mapped_bytes);
    }
    if (result != CUDA_SUCCESS && mapped_bytes != 0) {
        fgw_span_empty(worker, address, mapped_bytes, &dropped_bytes);
    }
    return result;
}
