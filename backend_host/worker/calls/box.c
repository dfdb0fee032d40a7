/*
 * Copies of boxes: rows and slices between the arena, the heap, the device and arrays.
 *
 * The driver gets nothing that was not bounded here: extents and pitches whose ends are numbers, arena and heap that
 * are this client's from the first byte to the last, places in arrays that are inside them.
 */
#include "calls/box.h"

#include "base/count.h"
#include "calls/array.h"
#include "calls/memory.h"
#include "client/arena.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/response.h"
#include "page/layout.h"

/* One side of a request. */
struct side {
    uint32_t place;
    uint64_t address, pitch_bytes, plane_rows;
    uint64_t x_bytes, y, z;
};

/* The same, as the driver takes it. */
struct native_side {
    CUmemorytype type;
    void *host;
    CUdeviceptr device;
    CUarray array;
    uint64_t pitch_bytes, plane_rows;
    uint64_t x_bytes, y, z;
};

struct box_size {
    uint64_t width_bytes, height, depth, bytes;
};

static bool fits(uint64_t at, uint64_t extent, uint64_t end)
{
    return at <= end && extent <= end - at;
}

/* From the first byte to the last; false when rows overlap, or when that is no number. */
static bool span_of(const struct side *side, const struct box_size *size, uint64_t *bytes)
{
    uint64_t rows, row_bytes;
    if (size->height > 1 && side->pitch_bytes < size->width_bytes) {
        return false;
    }
    if (size->depth > 1 && (side->plane_rows < size->height || side->pitch_bytes < size->width_bytes)) {
        return false;
    }
    return !__builtin_mul_overflow(size->depth - 1, side->plane_rows, &rows) &&
           !__builtin_add_overflow(rows, size->height - 1, &rows) &&
           !__builtin_mul_overflow(rows, side->pitch_bytes, &row_bytes) &&
           !__builtin_add_overflow(row_bytes, size->width_bytes, bytes);
}

static bool array_side(struct fgw_worker *worker, const struct side *side, const struct box_size *size,
                       struct native_side *native)
{
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_ARRAY, side->address);
    const struct fgw_array *array = handle.object;
    if (!array || !fits(side->x_bytes, size->width_bytes, array->box.row_bytes) ||
        !fits(side->y, size->height, array->box.rows) || !fits(side->z, size->depth, array->box.slices)) {
        return false;
    }
    *native = (struct native_side){
        .type = CU_MEMORYTYPE_ARRAY, .array = handle.native, .x_bytes = side->x_bytes, .y = side->y, .z = side->z};
    return true;
}

/* False: out of bounds, or a place that is none. */
static bool check_side(struct fgw_worker *worker, const struct side *side, const struct box_size *size,
                       struct native_side *native)
{
    uint64_t bytes, end;
    if (side->place == FGV_PLACE_ARRAY) {
        return array_side(worker, side, size, native);
    }
    if (side->place == FGV_PLACE_ARENA) {
        *native = (struct native_side){.type = CU_MEMORYTYPE_HOST,
                                       .host = fgw_arena_at(worker, side->address, size->bytes),
                                       .pitch_bytes = size->width_bytes,
                                       .plane_rows = size->height};
        return native->host != NULL;
    }
    if (!span_of(side, size, &bytes) || __builtin_add_overflow(side->address, bytes, &end)) {
        return false;
    }
    *native = (struct native_side){.pitch_bytes = side->pitch_bytes, .plane_rows = side->plane_rows};
    if (size->height == 1 && size->depth == 1) {
        native->pitch_bytes = size->width_bytes;
    }
    if (size->depth == 1) {
        native->plane_rows = size->height;
    }
    if (side->place == FGV_PLACE_HEAP && fgw_memory_is_own_heap(worker, side->address, bytes)) {
        native->type = CU_MEMORYTYPE_HOST;
        native->host = (void *)(uintptr_t)side->address;
        return true;
    }
    native->type = CU_MEMORYTYPE_DEVICE;
    native->device = fgw_worker_address(worker, side->address);
    return side->place == FGV_PLACE_DEVICE;
}

static bool read_size(const struct fgv_request_cuMemcpy3DAsync_v2 *fixed, struct box_size *size)
{
    *size = (struct box_size){.width_bytes = fixed->width_bytes, .height = fixed->height, .depth = fixed->depth};
    return size->width_bytes != 0 && size->height != 0 && size->depth != 0 &&
           !__builtin_mul_overflow(size->width_bytes, size->height, &size->bytes) &&
           !__builtin_mul_overflow(size->bytes, size->depth, &size->bytes);
}

static CUDA_MEMCPY3D native_copy(const struct native_side *to, const struct native_side *from,
                                 const struct box_size *size)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = from->x_bytes,
        .srcY = from->y,
        .srcZ = from->z,
        .srcMemoryType = from->type,
        .srcHost = from->host,
        .srcDevice = from->device,
        .srcArray = from->array,
        .srcPitch = from->pitch_bytes,
        .srcHeight = from->plane_rows,
        .dstXInBytes = to->x_bytes,
        .dstY = to->y,
        .dstZ = to->z,
        .dstMemoryType = to->type,
        .dstHost = to->host,
        .dstDevice = to->device,
        .dstArray = to->array,
        .dstPitch = to->pitch_bytes,
        .dstHeight = to->plane_rows,
        .WidthInBytes = size->width_bytes,
        .Height = size->height,
        .Depth = size->depth,
    };
}

CUresult fgw_serve_cuMemcpy3DAsync_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuMemcpy3DAsync_v2 *fixed = request->fixed;
    (void)reply;
    const struct side to = {.place = fixed->to_place,
                            .address = fixed->to_address,
                            .pitch_bytes = fixed->to_pitch_bytes,
                            .plane_rows = fixed->to_plane_rows,
                            .x_bytes = fixed->to_x_bytes,
                            .y = fixed->to_y,
                            .z = fixed->to_z};
    const struct side from = {.place = fixed->from_place,
                              .address = fixed->from_address,
                              .pitch_bytes = fixed->from_pitch_bytes,
                              .plane_rows = fixed->from_plane_rows,
                              .x_bytes = fixed->from_x_bytes,
                              .y = fixed->from_y,
                              .z = fixed->from_z};
    struct native_side native_to, native_from;
    struct box_size size;
    void *stream;
    if (!worker->driver.cuMemcpy3DAsync_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!read_size(fixed, &size) || !check_side(worker, &to, &size, &native_to) ||
        !check_side(worker, &from, &size, &native_from)) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgw_box_chunk(fixed) != FGV_NO_CHUNK && fgw_is_recording(worker, fixed->stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* the chunk is another's when the graph is launched */
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    if (result == CUDA_SUCCESS) {
        const CUDA_MEMCPY3D copy = native_copy(&native_to, &native_from, &size);
        result = worker->driver.cuMemcpy3DAsync_v2(&copy, stream);
    }
    if (result == CUDA_SUCCESS && native_from.type == CU_MEMORYTYPE_HOST) {
        fgw_count(&worker->slot->to_device_bytes, size.bytes);
    }
    if (result == CUDA_SUCCESS && native_to.type == CU_MEMORYTYPE_HOST) {
        fgw_count(&worker->slot->from_device_bytes, size.bytes);
    }
    return result;
}

uint32_t fgw_box_chunk(const struct fgv_request_cuMemcpy3DAsync_v2 *fixed)
{
    return fixed->to_place == FGV_PLACE_ARENA || fixed->from_place == FGV_PLACE_ARENA ? fixed->chunk : FGV_NO_CHUNK;
}
