/* Boxes, and pieces of them, as records on their way to the worker. */
#ifndef FRONTEND_GUEST_BOX_H
#define FRONTEND_GUEST_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "copy/sides.h"
#include "cuda_api/types.h"

/* Part of a box. */
struct fgv_piece {
    uint64_t x_bytes, y, z;
    uint64_t width_bytes, height, depth;
};

/* The address of a row of a side in memory, counted from where the piece begins. */
static inline uint64_t fgv_box_row(const struct fgv_box_side *side, const struct fgv_piece *piece, uint64_t y,
                                   uint64_t z)
{
    uint64_t row = (piece->z + z) * side->plane_rows + piece->y + y;
    return side->memory.address + row * side->pitch_bytes + piece->x_bytes;
}

/* `chunk` is where the pageable side is, FGV_NO_CHUNK when neither is. */
CUresult fgv_piece_post(const struct fgv_box *box, const struct fgv_piece *piece, uint64_t stream, uint32_t chunk,
                        bool is_fetched);
/* A box that the device reaches on both sides. */
CUresult fgv_box_post(const struct fgv_box *box, uint64_t stream);

#endif
