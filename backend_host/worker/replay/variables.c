/* See variables.h. */
#include "replay/variables.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "calls/state.h"

#define PIECE_BYTES (64u * 1024u) /* constants have no more */

/* ---- words that are addresses ---- */

/* Ranges with no more than `gap_bytes` between them are one. False: they are too many. */
static bool join(const struct fgw_told *told, uint64_t gap_bytes, struct fgw_scanned *scanned)
{
    uint32_t nr = 0;
    *scanned = (struct fgw_scanned){0};
    for (uint32_t i = 0; i < told->nr; i++) {
        const struct fgw_told_variable *one = &told->items[i];
        if (nr > 0 && one->told - (scanned->ranges[nr - 1].address + scanned->ranges[nr - 1].bytes) <= gap_bytes) {
            scanned->ranges[nr - 1].bytes = one->told + one->bytes - scanned->ranges[nr - 1].address;
        } else if (nr == FGW_MOST_SCANNED) {
            return false;
        } else {
            scanned->ranges[nr].address = one->told;
            scanned->ranges[nr++].bytes = one->bytes;
        }
    }
    return true;
}

/* Memory of the host that the device reaches. */
static CUresult scan_host(const struct fgw_ahead *ahead, const struct fgw_ranges *ranges,
                          const struct fgw_scanned *scanned)
{
    const struct fgv_driver *driver = ahead->driver;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < ranges->nr && result == CUDA_SUCCESS; i++) {
        const struct fgw_range *range = &ranges->items[i];
        CUdeviceptr address;
        if (driver->cuMemHostGetDevicePointer_v2(&address, (void *)(uintptr_t)range->address, 0) == CUDA_SUCCESS) {
            result = fgw_printer_scan(driver, &ahead->printer, address, range->bytes, scanned, ahead->stream);
        }
    }
    return result;
}

static CUresult scan(const struct fgw_worker *worker, const struct fgw_ahead *ahead)
{
    const struct fgw_ranges *extents = &worker->calls->span.extents;
    struct fgw_scanned scanned;
    for (uint64_t gap_bytes = 0; !join(&worker->told, gap_bytes, &scanned);) {
        gap_bytes = gap_bytes * 2 + PIECE_BYTES;
    }
    *ahead->printer.found = 0;
    CUresult result = scan_host(ahead, &worker->calls->pinned, &scanned);
    for (uint32_t i = 0; i < extents->nr && result == CUDA_SUCCESS; i++) {
        result = fgw_printer_scan(ahead->driver, &ahead->printer, extents->items[i].address, extents->items[i].bytes,
                                  &scanned, ahead->stream);
    }
    return result == CUDA_SUCCESS ? ahead->driver->cuStreamSynchronize(ahead->stream) : result;
}

static bool has_address(struct fgw_told *told, const uint64_t *words, uint64_t nr, uint64_t *found)
{
    for (uint64_t i = 0; i < nr; i++) {
        if (fgw_told_find(told, words[i])) {
            *found = words[i];
            return true;
        }
    }
    return false;
}

/* ---- what is in them ---- */

/* Looks through it on the way, as kernels may find addresses there, too. */
static CUresult copy(struct fgw_worker *worker, const struct fgw_told_variable *variable, CUcontext there,
                     const struct fgw_ahead *ahead, uint64_t *words)
{
    const struct fgv_driver *driver = ahead->driver;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < variable->bytes && result == CUDA_SUCCESS; done += PIECE_BYTES) {
        const uint64_t left = variable->bytes - done, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        driver->cuCtxSetCurrent(ahead->context);
        result = driver->cuMemcpyDtoHAsync_v2(words, variable->now + done, bytes, ahead->stream);
        result = result == CUDA_SUCCESS ? driver->cuStreamSynchronize(ahead->stream) : result;
        has_address(&worker->told, words, bytes / sizeof(*words), ahead->printer.found);
        driver->cuCtxSetCurrent(there);
        result =
            result == CUDA_SUCCESS ? driver->cuMemcpyHtoDAsync_v2(variable->other + done, words, bytes, NULL) : result;
        result = result == CUDA_SUCCESS ? driver->cuStreamSynchronize(NULL) : result;
    }
    return result;
}

static const char *copy_all(struct fgw_worker *worker, struct fgw_equals *equals, const struct fgw_ahead *ahead,
                            uint64_t *words, uint32_t *bound)
{
    for (uint32_t i = 0; i < worker->told.nr; i++) {
        struct fgw_told_variable *variable = &worker->told.items[i];
        CUcontext there;
        *bound = FGW_BOUND_OBJECTS;
        if (!fgw_equals_variable(equals, variable, &variable->other) ||
            ahead->driver->cuCtxGetCurrent(&there) != CUDA_SUCCESS) {
            return "not all of its variables are there";
        }
        *bound = FGW_BOUND_DEVICE;
        if (copy(worker, variable, there, ahead, words) != CUDA_SUCCESS) {
            return "its variables cannot be copied";
        }
    }
    return NULL;
}

const char *fgw_variables_follow(struct fgw_worker *worker, struct fgw_equals *equals, const struct fgw_ahead *ahead,
                                 uint32_t *bound)
{
    if (worker->told.nr == 0) {
        return NULL;
    }
    uint64_t *words = malloc(PIECE_BYTES);
    *bound = FGW_BOUND_DEVICE;
    if (!words || scan(worker, ahead) != CUDA_SUCCESS) {
        free(words);
        return "its memory cannot be looked through";
    }
    const char *why = copy_all(worker, equals, ahead, words, bound);
    free(words);
    if (!why && *ahead->printer.found != 0) {
        const struct fgw_told_variable *variable = fgw_told_find(&worker->told, *ahead->printer.found);
        fgw_log("in its memory is the address of %s", variable ? variable->name : "a module variable");
        *bound = FGW_BOUND_ADDRESSES;
        why = "it keeps an address";
    }
    *bound = why ? *bound : 0;
    return why;
}
