/* See ahead.h. */
#include "replay/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "calls/span.h"
#include "calls/state.h"
#include "client/ranges.h"

#define PRINTED_BYTES (FGW_MOST_PRINTS * FGW_PRINT_BYTES)

_Static_assert(FGW_SPAN_STEP_BYTES == FGW_PRINT_BYTES, "an extent has whole prints");

/* For one extent. */
struct fgw_ahead_piece {
    uint64_t address, bytes; /* of the extent */
    CUmemGenericAllocationHandle memory;
    CUdeviceptr window; /* the second address */
    struct fgw_print *prints;
    bool is_there;        /* prints are those of what was copied last */
    uint64_t begun_bytes; /* until then: copied in one round, from its beginning on */
};

static const char *said(CUresult result, const char *why)
{
    return result == CUDA_SUCCESS ? NULL : why;
}

const char *fgw_ahead_begin(struct fgw_ahead *ahead, const void *code)
{
    const struct fgv_driver *driver = ahead->driver;
    int reaches = 0, is_reached = 0;
    if (!driver->cuDeviceCanAccessPeer || !driver->cuMemcpyDtoDAsync_v2 || !driver->cuMemCreate ||
        !driver->cuMemAddressReserve || !driver->cuMemMap || !driver->cuMemSetAccess ||
        driver->cuDeviceCanAccessPeer(&reaches, ahead->from, ahead->to) != CUDA_SUCCESS ||
        driver->cuDeviceCanAccessPeer(&is_reached, ahead->to, ahead->from) != CUDA_SUCCESS || !reaches || !is_reached) {
        return "the devices do not reach each other's memory";
    }
    if (driver->cuStreamCreate(&ahead->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return "the device gives no stream";
    }
    return fgw_printer_make(driver, code, &ahead->printer) ? NULL : "the device takes no fingerprints";
}

/* ---- pieces ---- */

static uint32_t place_of(const struct fgw_ahead *ahead, uint64_t address)
{
    uint32_t low = 0, high = ahead->nr;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ahead->pieces[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void unmake(struct fgw_ahead *ahead, struct fgw_ahead_piece *piece)
{
    const struct fgv_driver *driver = ahead->driver;
    if (piece->window != 0) {
        driver->cuMemUnmap(piece->window, piece->bytes);
        driver->cuMemAddressFree(piece->window, piece->bytes);
    }
    if (piece->memory != 0) {
        driver->cuMemRelease(piece->memory);
        ahead->bytes -= piece->bytes;
    }
    free(piece->prints);
    *piece = (struct fgw_ahead_piece){0};
}

static CUresult map_window(const struct fgw_ahead *ahead, struct fgw_ahead_piece *piece)
{
    const struct fgv_driver *driver = ahead->driver;
    const CUmemAccessDesc access[] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ahead->from},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ahead->to},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CUdeviceptr window = 0;
    CUresult result = driver->cuMemAddressReserve(&window, piece->bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver->cuMemMap(window, piece->bytes, 0, piece->memory, 0);
    if (result != CUDA_SUCCESS) {
        driver->cuMemAddressFree(window, piece->bytes);
        return result;
    }
    piece->window = window;
    return driver->cuMemSetAccess(window, piece->bytes, access, 2);
}

static const char *make(struct fgw_ahead *ahead, struct fgw_ahead_piece *piece)
{
    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ahead->to}};
    piece->prints = calloc(piece->bytes / FGW_PRINT_BYTES, sizeof(*piece->prints));
    if (!piece->prints || ahead->driver->cuMemCreate(&piece->memory, piece->bytes, &property, 0) != CUDA_SUCCESS) {
        piece->memory = 0;
        return "the other device has no memory for what the program has";
    }
    ahead->bytes += piece->bytes;
    return said(map_window(ahead, piece), "memory of the other device cannot be reached");
}

static bool is_for(const struct fgw_ahead_piece *piece, const struct fgw_range *extent)
{
    return piece->address == extent->address && piece->bytes == extent->bytes;
}

/* Those go whose extents have gone. */
static void sweep(struct fgw_ahead *ahead, const struct fgw_ranges *extents)
{
    uint32_t nr_left = 0;
    for (uint32_t i = 0; i < ahead->nr; i++) {
        const uint32_t after = fgw_ranges_after(extents, ahead->pieces[i].address);
        if (after > 0 && is_for(&ahead->pieces[i], &extents->items[after - 1])) {
            ahead->pieces[nr_left++] = ahead->pieces[i];
        } else {
            unmake(ahead, &ahead->pieces[i]);
        }
    }
    ahead->nr = nr_left;
}

/* The piece for this extent. NULL: `why`. */
static struct fgw_ahead_piece *piece_of(struct fgw_ahead *ahead, const struct fgw_worker *worker,
                                        const struct fgw_range *extent, const char **why)
{
    uint32_t place = place_of(ahead, extent->address);
    struct fgw_ahead_piece *found = place < ahead->nr ? &ahead->pieces[place] : NULL;
    *why = NULL;
    if (found && is_for(found, extent)) {
        return found;
    }
    if (ahead->bytes + extent->bytes > atomic_load_explicit(&worker->slot->resident_bytes, memory_order_relaxed)) {
        sweep(ahead, &worker->calls->span.extents); /* there is never more on the other device than on this one */
        place = place_of(ahead, extent->address);
        found = place < ahead->nr ? &ahead->pieces[place] : NULL;
    }
    if (found && found->address == extent->address) {
        unmake(ahead, found);
    } else {
        if (ahead->nr == ahead->room) {
            const uint32_t room = ahead->room * 2 + 64;
            struct fgw_ahead_piece *grown = realloc(ahead->pieces, room * sizeof(*grown));
            if (!grown) {
                *why = "no memory";
                return NULL;
            }
            ahead->pieces = grown;
            ahead->room = room;
        }
        found = &ahead->pieces[place];
        memmove(found + 1, found, (ahead->nr - place) * sizeof(*found));
        ahead->nr++;
    }
    *found = (struct fgw_ahead_piece){.address = extent->address, .bytes = extent->bytes};
    *why = make(ahead, found);
    return *why ? NULL : found;
}

/* ---- copies ---- */

/* Copies those blocks of `nr` from the first on whose prints have changed. */
static CUresult copy_changed(struct fgw_ahead *ahead, struct fgw_ahead_piece *piece, uint64_t first, uint64_t nr,
                             uint64_t *changed_bytes)
{
    const struct fgw_print *now = fgw_printer_prints(&ahead->printer, 0);
    struct fgw_compared compared = {0};
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; piece->is_there && i < nr; i++) {
        fgw_print_compare(&piece->prints[first + i], &now[i], &compared);
    }
    atomic_fetch_add_explicit(&ahead->compared->bytes, compared.bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&ahead->compared->changed_bytes, compared.changed_bytes, memory_order_relaxed);
    for (uint64_t i = 0, end; i < nr && result == CUDA_SUCCESS; i = end) {
        end = i + 1;
        if (piece->is_there && fgw_print_is_same(&piece->prints[first + i], &now[i])) {
            continue;
        }
        while (end < nr && !(piece->is_there && fgw_print_is_same(&piece->prints[first + end], &now[end]))) {
            end++;
        }
        const uint64_t offset = (first + i) * FGW_PRINT_BYTES, bytes = (end - i) * FGW_PRINT_BYTES;
        result =
            ahead->driver->cuMemcpyDtoDAsync_v2(piece->window + offset, piece->address + offset, bytes, ahead->stream);
        *changed_bytes += bytes;
    }
    memcpy(&piece->prints[first], now, nr * sizeof(*now));
    return result;
}

/* Prints come first: what changes behind them is found the next time. */
static CUresult copy_some(struct fgw_ahead *ahead, struct fgw_ahead_piece *piece, uint64_t offset, uint64_t bytes,
                          uint64_t *changed_bytes)
{
    const struct fgv_driver *driver = ahead->driver;
    CUresult result = fgw_printer_submit(driver, &ahead->printer, piece->address + offset, bytes, 0, ahead->stream);
    result = result == CUDA_SUCCESS ? driver->cuStreamSynchronize(ahead->stream) : result;
    if (result == CUDA_SUCCESS) {
        result = copy_changed(ahead, piece, offset / FGW_PRINT_BYTES, bytes / FGW_PRINT_BYTES, changed_bytes);
    }
    return result == CUDA_SUCCESS ? driver->cuStreamSynchronize(ahead->stream) : result;
}

/* A piece may have come in the midst of a round, in place of one that the cursor is in: it is there when all of it is.
 */
static void note_copied(struct fgw_ahead_piece *piece, uint64_t offset, uint64_t bytes)
{
    if (offset == 0 || offset == piece->begun_bytes) {
        piece->begun_bytes = offset + bytes;
    }
    piece->is_there |= piece->begun_bytes == piece->bytes;
}

/* The next bytes of the extents behind `cursor`, which goes on. True: there were some. */
static bool copy_next(struct fgw_ahead *ahead, struct fgw_worker *worker, uint64_t *cursor, uint64_t *changed_bytes,
                      const char **why)
{
    const struct fgw_ranges *extents = &worker->calls->span.extents;
    uint32_t i = fgw_ranges_after(extents, *cursor);
    if (i > 0 && *cursor - extents->items[i - 1].address < extents->items[i - 1].bytes) {
        i--;
    }
    if (i == extents->nr) {
        return false;
    }
    const struct fgw_range extent = extents->items[i];
    if (extent.owner == 0) {
        *why = "not all of its memory is on the device";
        return true;
    }
    struct fgw_ahead_piece *piece = piece_of(ahead, worker, &extent, why);
    if (!piece) {
        return true;
    }
    const uint64_t offset = *cursor > extent.address ? *cursor - extent.address : 0;
    const uint64_t left = extent.bytes - offset, bytes = left < PRINTED_BYTES ? left : PRINTED_BYTES;
    *why = said(copy_some(ahead, piece, offset, bytes, changed_bytes), "its memory cannot be copied");
    note_copied(piece, offset, bytes);
    *cursor = extent.address + offset + bytes;
    return true;
}

const char *fgw_ahead_round(struct fgw_ahead *ahead, struct fgw_worker *worker, uint64_t *changed_bytes)
{
    const char *why = NULL;
    uint64_t cursor = 0;
    for (bool is_some = true; is_some && !why;) {
        if (atomic_load_explicit(ahead->is_given_up, memory_order_relaxed)) {
            return "its context goes";
        }
        const uint64_t before_bytes = *changed_bytes;
        fgw_span_lock();
        is_some = copy_next(ahead, worker, &cursor, changed_bytes, &why);
        fgw_span_unlock();
        atomic_fetch_add_explicit(&ahead->copied_bytes, *changed_bytes - before_bytes, memory_order_relaxed);
    }
    return why;
}

/* ---- the change ---- */

/* Memory at the address is this one from now on, reached by this device. What is mapped there cannot be mapped over. */
static CUresult put(const struct fgv_driver *driver, uint64_t address, uint64_t bytes,
                    CUmemGenericAllocationHandle memory, CUdevice device)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    driver->cuMemUnmap(address, bytes);
    const CUresult result = driver->cuMemMap(address, bytes, 0, memory, 0);
    return result == CUDA_SUCCESS ? driver->cuMemSetAccess(address, bytes, &access, 1) : result;
}

/* A piece for each extent, all of it copied. */
static const char *check(const struct fgw_ahead *ahead, const struct fgw_ranges *extents)
{
    for (uint32_t i = 0; i < extents->nr; i++) {
        const uint32_t place = place_of(ahead, extents->items[i].address);
        const struct fgw_ahead_piece *piece = place < ahead->nr ? &ahead->pieces[place] : NULL;
        if (!piece || piece->address != extents->items[i].address || piece->bytes != extents->items[i].bytes ||
            !piece->is_there || extents->items[i].owner == 0) {
            return "not all of its memory is copied";
        }
    }
    return NULL;
}

static CUresult exchange_one(struct fgw_ahead *ahead, struct fgw_range *extent, CUdevice device)
{
    struct fgw_ahead_piece *piece = &ahead->pieces[place_of(ahead, extent->address)];
    const CUmemGenericAllocationHandle before = extent->owner;
    const CUresult result = put(ahead->driver, extent->address, extent->bytes, piece->memory, device);
    if (result == CUDA_SUCCESS) {
        extent->owner = piece->memory;
        piece->memory = before;
    }
    return result;
}

const char *fgw_ahead_exchange(struct fgw_ahead *ahead, struct fgw_worker *worker, bool *is_lost)
{
    struct fgw_ranges *extents = &worker->calls->span.extents;
    const CUdevice from = ahead->from;
    const char *why = check(ahead, extents);
    *is_lost = false;
    if (why) {
        return why;
    }
    uint32_t nr = 0;
    while (nr < extents->nr && exchange_one(ahead, &extents->items[nr], ahead->to) == CUDA_SUCCESS) {
        nr++;
    }
    if (nr == extents->nr) {
        ahead->from = ahead->to;
        ahead->to = from;
        return NULL;
    }
    const struct fgw_range *failed = &extents->items[nr];
    *is_lost = put(ahead->driver, failed->address, failed->bytes, failed->owner, from) != CUDA_SUCCESS;
    while (nr-- > 0) {
        *is_lost |= exchange_one(ahead, &extents->items[nr], from) != CUDA_SUCCESS;
    }
    return "its addresses cannot be mapped anew";
}

void fgw_ahead_end(struct fgw_ahead *ahead)
{
    const struct fgv_driver *driver = ahead->driver;
    for (uint32_t i = 0; i < ahead->nr; i++) {
        unmake(ahead, &ahead->pieces[i]);
    }
    free(ahead->pieces);
    if (ahead->printer.prints) {
        fgw_printer_unmake(driver, &ahead->printer);
    }
    if (ahead->stream) {
        driver->cuStreamDestroy_v2(ahead->stream);
    }
    *ahead = (struct fgw_ahead){0};
}
