/* The sides of a copied box as addresses; the work is in copy.c. */
#include "cuda_api/copy_calls.h"
#include "cuda_api/prototypes.h"
#include "memory/array.h"
#include "stream/stream.h"
#include "work/copy.h"

/* The same as addresses. */
struct side {
    uintptr_t address;
    bool is_device;
    uint64_t pitch_bytes, slice_bytes;
};

static bool fits(uint64_t at, uint64_t length, uint64_t end)
{
    return at <= end && length <= end - at;
}

static CUresult side_of_array(struct side *side, const struct fgv_copy_side *said, const struct fgv_copy_size *size)
{
    const struct CUarray_st *array = said->array;

    if (!sgp_object_is(array, SGP_ARRAY)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!fits(said->x_bytes, size->width_bytes, array->box.row_bytes) ||
        !fits(said->y, size->height, array->box.rows) || !fits(said->z, size->depth, array->box.slices)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *side = (struct side){
        .address = (uintptr_t)array->base + said->z * array->slice_bytes + said->y * array->pitch_bytes + said->x_bytes,
        .is_device = true,
        .pitch_bytes = array->pitch_bytes,
        .slice_bytes = array->slice_bytes,
    };
    return CUDA_SUCCESS;
}

static CUresult side_of_memory(struct side *side, const struct fgv_copy_side *said, const struct fgv_copy_size *size)
{
    bool is_one_row = size->height == 1 && size->depth == 1 && !said->y && !said->z;
    uint64_t row, offset;

    *side = (struct side){.address = said->type == CU_MEMORYTYPE_HOST ? said->host : said->device,
                          .is_device = said->type == CU_MEMORYTYPE_DEVICE,
                          .pitch_bytes = said->pitch_bytes};
    if (!side->address || (!is_one_row && !fits(said->x_bytes, size->width_bytes, said->pitch_bytes)) ||
        (size->depth > 1 && !fits(said->y, size->height, said->height)) ||
        __builtin_mul_overflow(said->pitch_bytes, said->height, &side->slice_bytes) ||
        __builtin_mul_overflow(said->z, said->height, &row) || __builtin_add_overflow(row, said->y, &row) ||
        __builtin_mul_overflow(row, said->pitch_bytes, &offset) ||
        __builtin_add_overflow(offset, said->x_bytes, &offset) ||
        __builtin_add_overflow(side->address, offset, &side->address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult side_of(struct side *side, const struct fgv_copy_side *said, const struct fgv_copy_size *size)
{
    switch (said->type) {
    case CU_MEMORYTYPE_ARRAY:
        return side_of_array(side, said, size);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return side_of_memory(side, said, size);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sgp_box_of(struct sgp_box *box, const struct fgv_copy_side *to, const struct fgv_copy_side *from,
                    const struct fgv_copy_size *size)
{
    struct side destination, source;
    CUresult result = side_of(&destination, to, size);

    if (!result) {
        result = side_of(&source, from, size);
    }
    if (result) {
        return result;
    }
    *box = (struct sgp_box){
        .destination = destination.address,
        .source = source.address,
        .destination_is_device = destination.is_device,
        .source_is_device = source.is_device,
        .width = size->width_bytes,
        .height = size->height,
        .depth = size->depth,
        .destination_pitch = destination.pitch_bytes,
        .source_pitch = source.pitch_bytes,
        .destination_slice = destination.slice_bytes,
        .source_slice = source.slice_bytes,
        .destination_array = to->type == CU_MEMORYTYPE_ARRAY ? to->array : NULL,
        .source_array = from->type == CU_MEMORYTYPE_ARRAY ? from->array : NULL,
    };
    return CUDA_SUCCESS;
}

static CUresult copy_box(const struct fgv_copy_side *to, const struct fgv_copy_side *from,
                         const struct fgv_copy_size *size, CUstream handle, bool waits)
{
    struct sgp_box box;
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(handle, &stream);

    if (result) {
        return result;
    }
    if (!size->width_bytes || !size->height || !size->depth) {
        return sgp_leave(CUDA_SUCCESS);
    }
    result = sgp_box_of(&box, to, from, size);
    return sgp_leave(result ? result : sgp_copy(stream->object.context, stream, &box, !waits));
}

static bool copy_is_context(CUcontext context)
{
    if (sgp_enter_driver()) {
        return false;
    }
    bool is_context = sgp_object_is(context, SGP_CONTEXT);

    sgp_leave(CUDA_SUCCESS);
    return is_context;
}

static const struct fgv_copy_ops copy_ops = {.box = copy_box, .is_context = copy_is_context};

__attribute__((constructor)) static void lend_copy_ops(void)
{
    fgv_copy_set_ops(&copy_ops);
}
