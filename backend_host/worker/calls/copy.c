/*
 * Copies between the guest's memory and the device. The bytes are in the record, in the arena, or in heap memory that
 * both sides map at one address; the driver reads and writes them where they are.
 *
 * A chunk of the arena belongs to the copy until it has finished on the device, so it is completed by sync.c, or here
 * at once when the copy could not be submitted: a guest never waits for a chunk that nobody will complete.
 */
#include "calls/copy.h"

#include "base/count.h"
#include "calls/box.h"
#include "calls/memory.h"
#include "client/arena.h"
#include "client/current.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/response.h"
#include "page/layout.h"
#include "track/sync.h"

#define FGW_URGENT_BYTES (256u * 1024u) /* a chunk of this size is worth an event of its own, to be had again soon */

CUresult fgw_serve_cuMemcpyHtoDAsync_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemcpyHtoDAsync_v2 *fixed = request->fixed;
    (void)reply;
    const void *source = NULL;
    void *stream;
    if (fixed->place == FGV_PLACE_INLINE && fixed->bytes == request->payload_bytes) {
        source = request->payload;
    } else if (fixed->place == FGV_PLACE_ARENA) {
        source = fgw_arena_at(worker, fixed->source, fixed->bytes);
    } else if (fixed->place == FGV_PLACE_HEAP && fgw_memory_is_own_heap(worker, fixed->source, fixed->bytes)) {
        source = (const void *)(uintptr_t)fixed->source;
    }
    if (!source || !worker->driver.cuMemcpyHtoDAsync_v2) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fixed->place != FGV_PLACE_HEAP && fgw_is_recording(worker, fixed->stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* these bytes are gone when the graph is launched */
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemcpyHtoDAsync_v2(fgw_worker_address(worker, fixed->destination), source,
                                                     fixed->bytes, stream);
    }
    if (result == CUDA_SUCCESS) {
        fgw_count(&worker->slot->to_device_bytes, fixed->bytes);
    }
    return result;
}

CUresult fgw_serve_cuMemcpyDtoHAsync_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemcpyDtoHAsync_v2 *fixed = request->fixed;
    (void)reply;
    void *destination = NULL;
    void *stream;
    if (fixed->place == FGV_PLACE_ARENA) {
        destination = fgw_arena_at(worker, fixed->destination, fixed->bytes);
    } else if (fixed->place == FGV_PLACE_HEAP && fgw_memory_is_own_heap(worker, fixed->destination, fixed->bytes)) {
        destination = (void *)(uintptr_t)fixed->destination;
    }
    if (!destination || !worker->driver.cuMemcpyDtoHAsync_v2) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fixed->place != FGV_PLACE_HEAP && fgw_is_recording(worker, fixed->stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* these bytes are gone when the graph is launched */
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuMemcpyDtoHAsync_v2(destination, fgw_worker_address(worker, fixed->source),
                                                     fixed->bytes, stream);
    }
    if (result == CUDA_SUCCESS) {
        fgw_count(&worker->slot->from_device_bytes, fixed->bytes);
        if (fixed->place == FGV_PLACE_ARENA && fixed->bytes < worker->layout.chunk_bytes) {
            fgw_count(&worker->slot->nr_round_trips, 1); /* the last part: the program waits for its chunk */
        }
    }
    return result;
}

/* The chunk that a request lends, FGV_NO_CHUNK when none; is_urgent: somebody waits for it, or for the room. */
static uint32_t chunk_of(const struct fgw_request *request, bool *is_urgent)
{
    *is_urgent = false;
    if (request->header->call == FGV_CALL_cuMemcpyHtoDAsync_v2) {
        const struct fgv_request_cuMemcpyHtoDAsync_v2 *fixed = request->fixed;
        *is_urgent = fixed->bytes >= FGW_URGENT_BYTES;
        return fixed->place == FGV_PLACE_ARENA ? fixed->chunk : FGV_NO_CHUNK;
    }
    if (request->header->call == FGV_CALL_cuMemcpyDtoHAsync_v2) {
        const struct fgv_request_cuMemcpyDtoHAsync_v2 *fixed = request->fixed;
        *is_urgent = true;
        return fixed->place == FGV_PLACE_ARENA ? fixed->chunk : FGV_NO_CHUNK;
    }
    if (request->header->call == FGV_CALL_cuMemcpy3DAsync_v2) {
        *is_urgent = true;
        return fgw_box_chunk(request->fixed);
    }
    if (request->header->call == FGV_CALL_blob_append) {
        const struct fgv_request_blob_append *fixed = request->fixed;
        return fixed->place == FGV_PLACE_ARENA ? fixed->chunk : FGV_NO_CHUNK;
    }
    return FGV_NO_CHUNK;
}

void fgw_copy_settle(struct fgw_worker *worker, const struct fgw_request *request, struct fgw_stream *stream,
                     CUresult result)
{
    bool is_urgent;
    uint32_t chunk = chunk_of(request, &is_urgent);
    if (chunk == FGV_NO_CHUNK) {
        return;
    }
    if (stream && result == CUDA_SUCCESS) {
        result = stream->context->fault; /* it may have come to light with this very copy */
        if (result == CUDA_SUCCESS && fgw_sync_chunk(worker, stream, chunk, is_urgent)) {
            return;
        }
        result = result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    fgw_complete_chunk(worker, chunk, result);
}
