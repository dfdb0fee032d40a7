/* See space.h. */
#include "calls/space.h"

#include "base/log.h"
#include "calls/state.h"
#include "client/state.h"
#include "page/space.h"
#include "parts/persistent.h"
#include "turn/round.h"

static bool has_calls(const struct fgw_worker *worker)
{
    const struct fgv_driver *driver = &worker->driver;
    return driver->cuMemGetAllocationGranularity && driver->cuMemImportFromShareableHandle && driver->cuMemRelease &&
           driver->cuMemAddressReserve && driver->cuMemAddressFree && driver->cuMemMap && driver->cuMemUnmap &&
           driver->cuMemSetAccess && driver->cuStreamWriteValue32_v2 && driver->cuDeviceGetAttribute;
}

/* Bytes of the page: the least that a device gives. */
static CUresult measure(struct fgw_worker *worker, size_t *bytes)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
    };
    return worker->driver.cuMemGetAllocationGranularity(bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static CUresult map(struct fgw_worker *worker, CUmemGenericAllocationHandle native, size_t bytes, uint64_t *address)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr placed = 0;
    CUresult result = worker->driver.cuMemAddressReserve(&placed, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = worker->driver.cuMemMap(placed, bytes, 0, native, 0);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemSetAccess(placed, bytes, &access, 1);
        if (result != CUDA_SUCCESS) {
            worker->driver.cuMemUnmap(placed, bytes);
        }
    }
    if (result != CUDA_SUCCESS) {
        worker->driver.cuMemAddressFree(placed, bytes);
        return result;
    }
    *address = placed;
    return CUDA_SUCCESS;
}

void fgw_space_set_nests(struct fgw_worker *worker, fgw_nests_fn nests)
{
    worker->calls->space.nests = nests;
}

CUresult fgw_space_check_image(struct fgw_worker *worker, const uint8_t *image, uint64_t image_bytes)
{
    struct fgw_in_space *space = &worker->calls->space;
    if (!space->nests || !space->nests(image, image_bytes, fgw_capability_of(worker))) {
        return CUDA_SUCCESS;
    }
    if (!space->has_refused) { /* a guest may load such images all day */
        fgw_log("a program with kernels that launch kernels is refused, as MPS does not serve them: run it without "
                "--space");
        space->has_refused = true;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

int fgw_space_attach(struct fgw_worker *worker, int fd)
{
    int nr_multiprocessors = 0;
    size_t bytes = 0;
    uint64_t address = 0;
    CUmemGenericAllocationHandle native;
    if (!has_calls(worker)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    worker->driver.cuDeviceGetAttribute(&nr_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, worker->device);
    fgw_space_know_device(&worker->grantee, nr_multiprocessors > 0 ? (uint32_t)nr_multiprocessors : 0);
    CUresult result = measure(worker, &bytes);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemImportFromShareableHandle(&native, (void *)(intptr_t)fd,
                                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    if (result != CUDA_SUCCESS) {
        return (int)result;
    }
    result = map(worker, native, bytes, &address);
    worker->driver.cuMemRelease(native); /* it lasts for as long as it is mapped */
    if (result != CUDA_SUCCESS) {
        return (int)result;
    }
    fgw_round_know_word(worker, address);
    if (fgw_space_is_best_effort(&worker->grantee)) {
        fgw_persistent_share(worker, address);
    }
    return (int)result;
}
