/*
 * Boxes on their way: rows of pageable memory are packed into chunks of the arena, without the gaps between them, and
 * unpacked out of them; everything else the device reaches where it is. A chunk takes as many whole slices, else rows,
 * else bytes of a row as fit.
 *
 * A box without gaps on either side is a range, and copied as one.
 */
#include "copy/box_copy.h"

#include <string.h>

#include "base/bulk.h"
#include "base/log.h"
#include "call/call.h"
#include "call/chunks.h"
#include "context/capture_rules.h"
#include "context/stream.h"
#include "copy/box.h"
#include "copy/captured.h"
#include "copy/convoy.h"
#include "copy/copy.h"
#include "copy/registered.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

static uint64_t piece_bytes(const struct fgv_piece *piece)
{
    return piece->width_bytes * piece->height * piece->depth;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The piece of at most a chunk that begins where `piece` says; its extents are filled in. */
static void piece_measure(const struct fgv_box *box, struct fgv_piece *piece)
{
    const uint64_t most_bytes = fgv_guest.chunk_bytes;
    const uint64_t rows = most_bytes / box->width_bytes;
    piece->width_bytes = box->width_bytes - piece->x_bytes;
    piece->height = 1;
    piece->depth = 1;
    if (rows == 0) {
        piece->width_bytes = smaller(piece->width_bytes, most_bytes);
    } else if (rows >= box->height && piece->y == 0) {
        piece->height = box->height;
        piece->depth = smaller(rows / box->height, box->depth - piece->z);
    } else {
        piece->height = smaller(rows, box->height - piece->y);
    }
}

/* To where the next piece begins; false: that was the last. */
static bool piece_advance(const struct fgv_box *box, struct fgv_piece *piece)
{
    piece->x_bytes += piece->width_bytes;
    if (piece->x_bytes < box->width_bytes) {
        return true;
    }
    piece->x_bytes = 0;
    piece->y += piece->height;
    if (piece->y < box->height) {
        return true;
    }
    piece->y = 0;
    piece->z += piece->depth;
    return piece->z < box->depth;
}

static bool is_contiguous(const struct fgv_box_side *side, const struct fgv_piece *piece)
{
    bool has_no_gaps = piece->height == 1 || side->pitch_bytes == piece->width_bytes;
    return has_no_gaps && (piece->depth == 1 || side->plane_rows == piece->height);
}

static void piece_pack(const struct fgv_box *box, const struct fgv_piece *piece, uint8_t *chunk)
{
    if (is_contiguous(&box->from, piece)) {
        fgv_chunk_stage(chunk, (const uint8_t *)(uintptr_t)fgv_box_row(&box->from, piece, 0, 0), piece_bytes(piece));
        return;
    }
    for (uint64_t z = 0; z < piece->depth; z++) {
        for (uint64_t y = 0; y < piece->height; y++, chunk += piece->width_bytes) {
            memcpy(chunk, (const void *)(uintptr_t)fgv_box_row(&box->from, piece, y, z), piece->width_bytes);
        }
    }
}

static void piece_unpack(const struct fgv_box *box, const struct fgv_piece *piece, const uint8_t *chunk)
{
    if (is_contiguous(&box->to, piece)) {
        fgv_bulk_copy((uint8_t *)(uintptr_t)fgv_box_row(&box->to, piece, 0, 0), chunk, piece_bytes(piece));
        return;
    }
    for (uint64_t z = 0; z < piece->depth; z++) {
        for (uint64_t y = 0; y < piece->height; y++, chunk += piece->width_bytes) {
            memcpy((void *)(uintptr_t)fgv_box_row(&box->to, piece, y, z), chunk, piece->width_bytes);
        }
    }
}

/* ---- pageable memory ---- */

static CUresult send_pieces(const struct fgv_box *box, uint64_t stream)
{
    struct fgv_convoy convoy = {.nr = 0};
    struct fgv_piece piece = {.z = 0};
    CUresult result = fgv_client_await(); /* the chunks are the worker's to free */
    while (result == CUDA_SUCCESS) {
        uint32_t chunk;
        piece_measure(box, &piece);
        result = fgv_convoy_chunk(&convoy, &chunk);
        if (result != CUDA_SUCCESS) {
            break;
        }
        piece_pack(box, &piece, fgv_chunk_memory(chunk));
        fgv_chunk_arm(chunk);
        result = fgv_piece_post(box, &piece, stream, chunk, false);
        if (result != CUDA_SUCCESS) {
            fgv_chunk_give(chunk);
            break;
        }
        fgv_convoy_add(&convoy, chunk, (uint32_t)piece_bytes(&piece));
        if (!piece_advance(box, &piece)) {
            break;
        }
    }
    fgv_convoy_leave_behind(&convoy);
    return result;
}

/* Waits for the oldest chunk and copies it out; `piece` is the one in it, and then the next. */
static CUresult unload(const struct fgv_box *box, struct fgv_convoy *convoy, struct fgv_piece *piece)
{
    uint32_t bytes;
    uint32_t chunk = fgv_convoy_remove(convoy, &bytes);
    CUresult result = fgv_chunk_wait(chunk);
    if (atomic_load_explicit(&fgv_guest.chunks[chunk].state, memory_order_acquire) != FGV_SLOT_DONE) {
        return result; /* the worker is gone; nobody will use this chunk again */
    }
    piece_measure(box, piece);
    if (result == CUDA_SUCCESS) {
        piece_unpack(box, piece, fgv_chunk_memory(chunk));
    }
    piece_advance(box, piece);
    fgv_chunk_give(chunk);
    return result;
}

static CUresult fetch_pieces(const struct fgv_box *box, uint64_t stream)
{
    struct fgv_convoy convoy = {.nr = 0};
    struct fgv_piece asked = {.z = 0}, had = {.z = 0};
    bool is_more = true;
    CUresult result = fgv_client_await();
    while (is_more && result == CUDA_SUCCESS) {
        uint32_t chunk;
        if (convoy.nr == FGV_CONVOY_MAX || !fgv_chunk_try(&chunk)) {
            if (convoy.nr > 0) {
                result = unload(box, &convoy, &had);
                continue;
            }
            result = fgv_chunk_take(&chunk);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        piece_measure(box, &asked);
        fgv_chunk_arm(chunk);
        result = fgv_piece_post(box, &asked, stream, chunk, true);
        if (result != CUDA_SUCCESS) {
            fgv_chunk_give(chunk);
            break;
        }
        fgv_convoy_add(&convoy, chunk, (uint32_t)piece_bytes(&asked));
        is_more = piece_advance(box, &asked);
    }
    while (convoy.nr > 0) {
        CUresult one = unload(box, &convoy, &had);
        result = result == CUDA_SUCCESS ? one : result;
    }
    fgv_count(FGV_COUNT_ROUND_TRIPS, 1);
    if (result == CUDA_SUCCESS) {
        fgv_call_print_output();
    }
    return result;
}

/* ---- what is what ---- */

static CUresult copy_on_host(const struct fgv_box *box, CUstream stream)
{
    const struct fgv_piece all = {.width_bytes = box->width_bytes, .height = box->height, .depth = box->depth};
    CUresult result = cuStreamSynchronize(stream);
    for (uint64_t z = 0; z < box->depth && result == CUDA_SUCCESS; z++) {
        for (uint64_t y = 0; y < box->height; y++) {
            memmove((void *)(uintptr_t)fgv_box_row(&box->to, &all, y, z),
                    (const void *)(uintptr_t)fgv_box_row(&box->from, &all, y, z), box->width_bytes);
        }
    }
    return result;
}

static bool is_on_device(const struct fgv_box_side *side)
{
    return side->is_array || fgv_memory_is_device(side->memory.kind);
}

/* True when no gap is on either side: then the box is one row of what it was. */
static bool is_range(struct fgv_box *box)
{
    const struct fgv_piece all = {.width_bytes = box->width_bytes, .height = box->height, .depth = box->depth};
    return !box->to.is_array && !box->from.is_array && is_contiguous(&box->to, &all) && is_contiguous(&box->from, &all);
}

static CUresult capture(struct fgv_box *box, uint64_t stream)
{
    struct fgv_staging staging;
    CUresult result = fgv_captured_begin(box, stream, &staging);
    if (result == CUDA_SUCCESS) {
        result = fgv_box_post(box, stream);
    }
    return fgv_captured_end(result, stream, &staging);
}

static CUresult box_copy(struct fgv_box *box, uint64_t bytes, CUstream stream, bool waits)
{
    uint64_t wire = fgv_stream_wire(stream);
    if (wire == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (fgv_capture_is_active(wire)) {
        return waits ? fgv_capture_break(wire) : capture(box, wire);
    }
    fgv_registered_reach_box(&box->to, box);
    fgv_registered_reach_box(&box->from, box);
    CUresult result;
    if (fgv_registered_copy_behind(box, stream, wire, &result)) {
        return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
    }
    bool to_device = is_on_device(&box->to), from_device = is_on_device(&box->from);
    if (to_device && from_device) {
        return fgv_box_post(box, wire);
    }
    if (!to_device && !from_device) {
        return copy_on_host(box, stream);
    }
    fgv_count(to_device ? FGV_COUNT_TO_DEVICE_BYTES : FGV_COUNT_FROM_DEVICE_BYTES, bytes);
    const struct fgv_box_side *host = to_device ? &box->from : &box->to;
    if (fgv_memory_is_shared(host->memory.kind)) {
        result = fgv_box_post(box, wire);
    } else if (to_device) {
        result = send_pieces(box, wire);
        waits = waits && fgv_copy_is_waited_for(host->memory.kind, bytes);
    } else {
        return fetch_pieces(box, wire);
    }
    return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
}

static bool is_managed(const struct fgv_box_side *side)
{
    return !side->is_array && side->memory.kind == FGV_MEMORY_MANAGED;
}

CUresult fgv_box_copy(struct fgv_box *box, CUstream stream, bool waits)
{
    const uint64_t bytes = box->width_bytes * box->height * box->depth;
    if (is_range(box)) {
        return fgv_copy_range(&box->to.memory, &box->from.memory, bytes, stream, waits);
    }
    const CUresult result = box_copy(box, bytes, stream, waits);
    return result == CUDA_SUCCESS && waits && (is_managed(&box->to) || is_managed(&box->from))
               ? cuStreamSynchronize(stream)
               : result;
}
