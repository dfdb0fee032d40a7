/* Copies that a stream captures: see captured.h. */
#include "copy/captured.h"

#include "context/host_function.h"

static CUresult stage(struct fgv_box_side *side, const struct fgv_box *box, bool fills, uint64_t *number)
{
    const struct fgv_copy_size size = {.width_bytes = box->width_bytes, .height = box->height, .depth = box->depth};
    const struct fgv_copy_side said = {.type = CU_MEMORYTYPE_HOST,
                                       .host = side->memory.address,
                                       .pitch_bytes = side->pitch_bytes,
                                       .height = side->plane_rows};
    return fgv_staging_is_needed(side) ? fgv_staging_put(side, &size, fills, &said, 0, number) : CUDA_SUCCESS;
}

CUresult fgv_captured_begin(struct fgv_box *box, uint64_t stream, struct fgv_staging *staging)
{
    *staging = (struct fgv_staging){0};
    CUresult result = stage(&box->from, box, true, &staging->fill);
    if (result == CUDA_SUCCESS) {
        result = stage(&box->to, box, false, &staging->drain);
    }
    if (result == CUDA_SUCCESS && staging->fill != 0) {
        result = fgv_host_function_capture(stream, staging->fill, FGV_HOST_NODE_FILL);
        staging->fill = 0; /* the graph's, or dropped */
    }
    return result;
}

CUresult fgv_captured_end(CUresult result, uint64_t stream, struct fgv_staging *staging)
{
    if (result == CUDA_SUCCESS && staging->drain != 0) {
        result = fgv_host_function_capture(stream, staging->drain, FGV_HOST_NODE_DRAIN);
        staging->drain = 0;
    }
    fgv_staging_drop(staging);
    return result;
}
