/*
 * Copies between the program's memory and the device.
 *
 *   to the device      small: the bytes travel in the record. Larger: through chunks of the arena, several on their
 *                      way at a time; the call returns when the source has been read, the worker frees each chunk
 *                      when the device has it.
 *   from the device    through chunks, several on their way; each is copied out as it is completed.
 *   pinned             the device reaches that memory itself: the record carries the address. A call without a stream
 *                      waits for it.
 *   managed            as the device's, which has it then.
 *   host to host       after everything before it on the stream: by memcpy here.
 *
 * Wrong when: the program changes pageable memory while a copy reads it. CUDA forbids that too.
 */
#include "copy/copy.h"

#include <stdbool.h>
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
#include "copy/registered.h"
#include "cuda_api/prototypes.h"
#include "memory/span.h"
#include "region/client.h"

#define INLINE_MAX_BYTES 32768u
/* ---- to the device ---- */

static CUresult send_inline(uint64_t destination, const uint8_t *source, uint32_t bytes, uint64_t stream)
{
    struct fgv_call call;
    struct fgv_request_cuMemcpyHtoDAsync_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuMemcpyHtoDAsync_v2, sizeof(*request), bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemcpyHtoDAsync_v2){
        .destination = destination, .stream = stream, .bytes = bytes, .place = FGV_PLACE_INLINE, .chunk = FGV_NO_CHUNK};
    memcpy(call.payload, source, bytes);
    return fgv_call_post(&call);
}

static CUresult send_from(uint64_t destination, uint64_t source, uint64_t bytes, uint64_t stream, enum fgv_place place,
                          uint32_t chunk)
{
    struct fgv_call call;
    struct fgv_request_cuMemcpyHtoDAsync_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuMemcpyHtoDAsync_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemcpyHtoDAsync_v2){
        .destination = destination, .stream = stream, .bytes = bytes, .source = source, .place = place, .chunk = chunk};
    return fgv_call_post(&call);
}

static CUresult send_chunks(uint64_t destination, const uint8_t *source, uint64_t bytes, uint64_t stream)
{
    struct fgv_convoy convoy = {.nr = 0};
    CUresult result = CUDA_SUCCESS;
    while (bytes > 0 && result == CUDA_SUCCESS) {
        uint32_t chunk;
        uint32_t some_bytes = bytes < fgv_guest.chunk_bytes ? (uint32_t)bytes : fgv_guest.chunk_bytes;
        result = fgv_convoy_chunk(&convoy, &chunk);
        if (result != CUDA_SUCCESS) {
            break;
        }
        fgv_chunk_stage(fgv_chunk_memory(chunk), source, some_bytes);
        fgv_chunk_arm(chunk);
        result = send_from(destination, fgv_chunk_offset(chunk), some_bytes, stream, FGV_PLACE_ARENA, chunk);
        if (result != CUDA_SUCCESS) {
            fgv_chunk_give(chunk);
            break;
        }
        fgv_convoy_add(&convoy, chunk, some_bytes);
        destination += some_bytes;
        source += some_bytes;
        bytes -= some_bytes;
    }
    fgv_convoy_leave_behind(&convoy);
    return result;
}

static CUresult send_pageable(uint64_t destination, const void *source, uint64_t bytes, uint64_t stream)
{
    if (bytes <= INLINE_MAX_BYTES) {
        return send_inline(destination, source, (uint32_t)bytes, stream);
    }
    CUresult result = fgv_client_await(); /* the chunks are the worker's to free */
    return result != CUDA_SUCCESS ? result : send_chunks(destination, source, bytes, stream);
}

/* ---- from the device ---- */

static CUresult fetch_to(uint64_t destination, uint64_t source, uint64_t bytes, uint64_t stream, enum fgv_place place,
                         uint32_t chunk)
{
    struct fgv_call call;
    struct fgv_request_cuMemcpyDtoHAsync_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuMemcpyDtoHAsync_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemcpyDtoHAsync_v2){
        .destination = destination, .source = source, .stream = stream, .bytes = bytes, .place = place, .chunk = chunk};
    return fgv_call_post(&call);
}

/* Waits for the oldest chunk and copies it out. */
static CUresult convoy_unload(struct fgv_convoy *convoy, uint8_t **destination)
{
    uint32_t some_bytes;
    uint32_t chunk = fgv_convoy_remove(convoy, &some_bytes);
    CUresult result = fgv_chunk_wait(chunk);
    if (atomic_load_explicit(&fgv_guest.chunks[chunk].state, memory_order_acquire) != FGV_SLOT_DONE) {
        return result; /* the worker is gone; nobody will use this chunk again */
    }
    if (result == CUDA_SUCCESS) {
        fgv_bulk_copy(*destination, fgv_chunk_memory(chunk), some_bytes);
    }
    *destination += some_bytes;
    fgv_chunk_give(chunk);
    return result;
}

static CUresult fetch_pageable(uint8_t *destination, uint64_t source, uint64_t bytes, uint64_t stream)
{
    struct fgv_convoy convoy = {.nr = 0};
    CUresult result = fgv_client_await();
    if (result == CUDA_SUCCESS) {
        fgv_call_tell_who_waits();
    }
    while (bytes > 0 && result == CUDA_SUCCESS) {
        uint32_t chunk;
        uint32_t some_bytes = bytes < fgv_guest.chunk_bytes ? (uint32_t)bytes : fgv_guest.chunk_bytes;
        if (convoy.nr == FGV_CONVOY_MAX || !fgv_chunk_try(&chunk)) {
            if (convoy.nr > 0) {
                result = convoy_unload(&convoy, &destination);
                continue;
            }
            result = fgv_chunk_take(&chunk);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        fgv_chunk_arm(chunk);
        result = fetch_to(fgv_chunk_offset(chunk), source, some_bytes, stream, FGV_PLACE_ARENA, chunk);
        if (result != CUDA_SUCCESS) {
            fgv_chunk_give(chunk);
            break;
        }
        fgv_convoy_add(&convoy, chunk, some_bytes);
        source += some_bytes;
        bytes -= some_bytes;
    }
    while (convoy.nr > 0) {
        CUresult one = convoy_unload(&convoy, &destination);
        result = result == CUDA_SUCCESS ? one : result;
    }
    fgv_count(FGV_COUNT_ROUND_TRIPS, 1);
    if (result == CUDA_SUCCESS) {
        fgv_call_print_output();
    }
    return result;
}

/* ---- what is what ---- */

CUresult fgv_side_find(struct fgv_side *side, uint64_t address, uint64_t bytes)
{
    struct fgv_range range;
    *side = (struct fgv_side){.address = address};
    if (!fgv_memory_find(address, &range)) {
        return fgv_span_has(address) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; /* freed: no memory of the program's */
    }
    side->kind = range.kind;
    if (range.kind == FGV_MEMORY_REGISTERED) {
        return CUDA_SUCCESS; /* the program's own memory: what lies behind the range may be copied too */
    }
    if (range.kind == FGV_MEMORY_MAPPED) {
        return fgv_memory_is_mapped(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    return bytes > range.bytes - (address - range.address) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_on_host(uint64_t destination, uint64_t source, uint64_t bytes, CUstream stream)
{
    CUresult result = cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) {
        memmove((void *)(uintptr_t)destination, (const void *)(uintptr_t)source, bytes);
    }
    return result;
}

static bool is_reachable(enum fgv_memory_kind kind)
{
    return fgv_memory_is_device(kind) || fgv_memory_is_shared(kind);
}

static bool is_one_sided(enum fgv_memory_kind one, enum fgv_memory_kind other)
{
    return fgv_memory_is_device(one) || fgv_memory_is_device(other);
}

static struct fgv_box box_of(const struct fgv_side *destination, const struct fgv_side *source, uint64_t bytes)
{
    return (struct fgv_box){.width_bytes = bytes,
                            .height = 1,
                            .depth = 1,
                            .to = {.memory = *destination, .pitch_bytes = bytes, .plane_rows = 1},
                            .from = {.memory = *source, .pitch_bytes = bytes, .plane_rows = 1}};
}

/* A copy that the device cannot make as it is, into a capture: staged it can, and between two places on the host, too.
 */
static CUresult capture(const struct fgv_side *destination, const struct fgv_side *source, uint64_t bytes,
                        CUstream stream, uint64_t wire)
{
    struct fgv_box box = box_of(destination, source, bytes);
    struct fgv_staging staging;
    CUresult result = fgv_captured_begin(&box, wire, &staging);
    if (result == CUDA_SUCCESS) {
        result = is_one_sided(box.to.memory.kind, box.from.memory.kind)
                     ? fgv_copy_range(&box.to.memory, &box.from.memory, bytes, stream, false)
                     : fgv_box_post(&box, wire);
    }
    return fgv_captured_end(result, wire, &staging);
}

/*
 * What a captured copy reads and writes when its graph is launched must be there for the host then: device memory, and
 * the heap. Anything else goes another way (captured.h).
 *
 * The copy itself, `waits` being true for the calls without a stream. Device to device is left to the generated calls.
 */
static CUresult copy_range(const struct fgv_side *destination, const struct fgv_side *source, uint64_t bytes,
                           CUstream stream, bool waits)
{
    uint64_t wire = fgv_stream_wire(stream);
    if (wire == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (destination->kind == FGV_MEMORY_MANAGED || source->kind == FGV_MEMORY_MANAGED) {
        fgv_call_work_follows();
    }
    CUresult result;
    const bool is_seen_by_host = is_reachable(destination->kind) && is_reachable(source->kind);
    if (!(is_seen_by_host && is_one_sided(destination->kind, source->kind)) && fgv_capture_is_active(wire)) {
        return waits ? fgv_capture_break(wire) : capture(destination, source, bytes, stream, wire);
    }
    if (fgv_memory_is_device(destination->kind) && fgv_memory_is_device(source->kind)) {
        return waits ? cuMemcpyDtoD_v2(destination->address, source->address, bytes)
                     : cuMemcpyDtoDAsync_v2(destination->address, source->address, bytes, stream);
    }
    if (fgv_memory_is_device(destination->kind)) {
        fgv_count(FGV_COUNT_TO_DEVICE_BYTES, bytes);
        if (!fgv_memory_is_shared(source->kind)) {
            result = send_pageable(destination->address, (const void *)(uintptr_t)source->address, bytes, wire);
            waits = waits && fgv_copy_is_waited_for(source->kind, bytes);
            return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
        }
        result = send_from(destination->address, source->address, bytes, wire, FGV_PLACE_HEAP, FGV_NO_CHUNK);
    } else if (fgv_memory_is_device(source->kind)) {
        fgv_count(FGV_COUNT_FROM_DEVICE_BYTES, bytes);
        if (!fgv_memory_is_shared(destination->kind)) {
            return fetch_pageable((uint8_t *)(uintptr_t)destination->address, source->address, bytes, wire);
        }
        result = fetch_to(destination->address, source->address, bytes, wire, FGV_PLACE_HEAP, FGV_NO_CHUNK);
    } else {
        return copy_on_host(destination->address, source->address, bytes, stream);
    }
    return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
}

/* The same where a side may be memory that the program registered. */
static CUresult copy_registered(const struct fgv_side *destination, const struct fgv_side *source, uint64_t bytes,
                                CUstream stream, bool waits)
{
    const uint64_t wire = fgv_stream_wire(stream);
    if (wire == FGV_STREAM_INVALID || fgv_capture_is_active(wire)) {
        return copy_range(destination, source, bytes, stream, waits);
    }
    struct fgv_box box = box_of(destination, source, bytes);
    fgv_registered_reach(&box.to.memory, bytes);
    fgv_registered_reach(&box.from.memory, bytes);
    CUresult result;
    if (!fgv_registered_copy_behind(&box, stream, wire, &result)) {
        return copy_range(&box.to.memory, &box.from.memory, bytes, stream, waits);
    }
    return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
}

static bool is_managed(const struct fgv_side *side)
{
    return side->kind == FGV_MEMORY_MANAGED;
}

/* Managed memory may lie where the program writes to it, and reads it, at once. */
CUresult fgv_copy_range(const struct fgv_side *destination, const struct fgv_side *source, uint64_t bytes,
                        CUstream stream, bool waits)
{
    const bool is_registered = destination->kind == FGV_MEMORY_REGISTERED || source->kind == FGV_MEMORY_REGISTERED;
    const CUresult result = is_registered ? copy_registered(destination, source, bytes, stream, waits)
                                          : copy_range(destination, source, bytes, stream, waits);
    return result == CUDA_SUCCESS && waits && (is_managed(destination) || is_managed(source))
               ? cuStreamSynchronize(stream)
               : result;
}

/* Which side the call says is the device's: there, an address that nobody allocated is an error. */
enum claim { CLAIM_NONE = 0, CLAIM_DESTINATION = 1, CLAIM_SOURCE = 2 };

static CUresult copy_claimed(uint64_t destination, uint64_t source, uint64_t bytes, CUstream stream, bool waits,
                             enum claim claim)
{
    struct fgv_side to, from;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS || bytes == 0) {
        return result;
    }
    if (destination == 0 || source == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = fgv_side_find(&to, destination, bytes);
    if (result == CUDA_SUCCESS) {
        result = fgv_side_find(&from, source, bytes);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const enum fgv_memory_kind claimed = claim == CLAIM_DESTINATION ? to.kind
                                         : claim == CLAIM_SOURCE    ? from.kind
                                                                    : FGV_MEMORY_DEVICE;
    if (claimed == FGV_MEMORY_PAGEABLE || claimed == FGV_MEMORY_REGISTERED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return fgv_copy_range(&to, &from, bytes, stream, waits);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_claimed(dst, src, ByteCount, NULL, true, CLAIM_NONE);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_claimed(dst, src, ByteCount, hStream, false, CLAIM_NONE);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_claimed(dstDevice, (uint64_t)(uintptr_t)srcHost, ByteCount, NULL, true, CLAIM_DESTINATION);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return copy_claimed(dstDevice, (uint64_t)(uintptr_t)srcHost, ByteCount, hStream, false, CLAIM_DESTINATION);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_claimed((uint64_t)(uintptr_t)dstHost, srcDevice, ByteCount, NULL, true, CLAIM_SOURCE);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_claimed((uint64_t)(uintptr_t)dstHost, srcDevice, ByteCount, hStream, false, CLAIM_SOURCE);
}
