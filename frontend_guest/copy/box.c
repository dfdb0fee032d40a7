/* Boxes, and pieces of them, as records on their way to the worker. */
#include "copy/box.h"

#include "call/call.h"
#include "call/chunks.h"
#include "region/client.h"

static enum fgv_place place_of(const struct fgv_box_side *side)
{
    if (side->is_array) {
        return FGV_PLACE_ARRAY;
    }
    return fgv_memory_is_device(side->memory.kind) ? FGV_PLACE_DEVICE : FGV_PLACE_HEAP;
}

CUresult fgv_piece_post(const struct fgv_box *box, const struct fgv_piece *piece, uint64_t stream, uint32_t chunk,
                        bool is_fetched)
{
    const struct fgv_box_side *to = &box->to, *from = &box->from;
    bool to_arena = chunk != FGV_NO_CHUNK && is_fetched, from_arena = chunk != FGV_NO_CHUNK && !is_fetched;
    struct fgv_call call;
    struct fgv_request_cuMemcpy3DAsync_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuMemcpy3DAsync_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuMemcpy3DAsync_v2){
        .stream = stream,
        .width_bytes = piece->width_bytes,
        .height = piece->height,
        .depth = piece->depth,
        .to_address = to_arena       ? fgv_chunk_offset(chunk)
                      : to->is_array ? to->array
                                     : fgv_box_row(to, piece, 0, 0),
        .to_pitch_bytes = to->pitch_bytes,
        .to_plane_rows = to->plane_rows,
        .to_x_bytes = to->x_bytes + (to->is_array ? piece->x_bytes : 0),
        .to_y = to->y + (to->is_array ? piece->y : 0),
        .to_z = to->z + (to->is_array ? piece->z : 0),
        .from_address = from_arena       ? fgv_chunk_offset(chunk)
                        : from->is_array ? from->array
                                         : fgv_box_row(from, piece, 0, 0),
        .from_pitch_bytes = from->pitch_bytes,
        .from_plane_rows = from->plane_rows,
        .from_x_bytes = from->x_bytes + (from->is_array ? piece->x_bytes : 0),
        .from_y = from->y + (from->is_array ? piece->y : 0),
        .from_z = from->z + (from->is_array ? piece->z : 0),
        .to_place = to_arena ? FGV_PLACE_ARENA : place_of(to),
        .from_place = from_arena ? FGV_PLACE_ARENA : place_of(from),
        .chunk = chunk,
    };
    return fgv_call_post(&call);
}

CUresult fgv_box_post(const struct fgv_box *box, uint64_t stream)
{
    const struct fgv_piece all = {.width_bytes = box->width_bytes, .height = box->height, .depth = box->depth};
    return fgv_piece_post(box, &all, stream, FGV_NO_CHUNK, false);
}
