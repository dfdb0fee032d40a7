/*
 * The sides of a copied box as the guest sees them. What a program says is checked here: positions within pitches, ends
 * that are numbers, memory and arrays that hold what is copied.
 */
#include "copy/box_sides.h"

#include "call/call.h"
#include "context/context.h"
#include "copy/box_copy.h"
#include "copy/copy.h"
#include "cuda_api/array_format.h"
#include "cuda_api/copy_calls.h"
#include "cuda_api/prototypes.h"
#include "memory/array.h"

static bool fits(uint64_t at, uint64_t length, uint64_t end)
{
    return at <= end && length <= end - at;
}

static CUresult side_of_array(struct fgv_box_side *side, const struct fgv_copy_side *said,
                              const struct fgv_copy_size *size)
{
    struct fgv_array_box box;
    const struct fgv_array *array = fgv_array_find(said->array);
    if (!array) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!fgv_array_box_of(&array->descriptor, 0, &box) || !fits(said->x_bytes, size->width_bytes, box.row_bytes) ||
        !fits(said->y, size->height, box.rows) || !fits(said->z, size->depth, box.slices)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *side = (struct fgv_box_side){.is_array = true,
                                  .array = (uint64_t)(uintptr_t)said->array,
                                  .x_bytes = said->x_bytes,
                                  .y = said->y,
                                  .z = said->z};
    return CUDA_SUCCESS;
}

/* The offset of the first byte and the bytes from there to the last; false: no such numbers. */
static bool span_of(const struct fgv_copy_side *said, const struct fgv_copy_size *size, uint64_t *start,
                    uint64_t *bytes)
{
    uint64_t rows, row_bytes, first_row;
    return !__builtin_mul_overflow(said->z, said->height, &first_row) &&
           !__builtin_add_overflow(first_row, said->y, &first_row) &&
           !__builtin_mul_overflow(first_row, said->pitch_bytes, start) &&
           !__builtin_add_overflow(*start, said->x_bytes, start) &&
           !__builtin_mul_overflow(size->depth - 1, said->height, &rows) &&
           !__builtin_add_overflow(rows, size->height - 1, &rows) &&
           !__builtin_mul_overflow(rows, said->pitch_bytes, &row_bytes) &&
           !__builtin_add_overflow(row_bytes, size->width_bytes, bytes);
}

static CUresult side_of_memory(struct fgv_box_side *side, const struct fgv_copy_side *said,
                               const struct fgv_copy_size *size)
{
    uint64_t start, bytes, end;
    uint64_t base = said->type == CU_MEMORYTYPE_HOST ? said->host : said->device;
    bool is_one_row = size->height == 1 && size->depth == 1 && said->y == 0 && said->z == 0;
    if (base == 0 || (!is_one_row && !fits(said->x_bytes, size->width_bytes, said->pitch_bytes)) ||
        (size->depth > 1 && !fits(said->y, size->height, said->height)) || !span_of(said, size, &start, &bytes) ||
        __builtin_add_overflow(base, start, &base) || __builtin_add_overflow(base, bytes, &end)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *side = (struct fgv_box_side){.pitch_bytes = said->pitch_bytes, .plane_rows = said->height};
    CUresult result = fgv_side_find(&side->memory, base, bytes);
    bool is_known = fgv_memory_is_device(side->memory.kind) || fgv_memory_is_shared(side->memory.kind);
    return result == CUDA_SUCCESS && said->type == CU_MEMORYTYPE_DEVICE && !is_known ? CUDA_ERROR_INVALID_VALUE
                                                                                     : result;
}

CUresult fgv_box_side_check(struct fgv_box_side *side, const struct fgv_copy_side *said,
                            const struct fgv_copy_size *size)
{
    switch (said->type) {
    case CU_MEMORYTYPE_ARRAY:
        return side_of_array(side, said, size);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return side_of_memory(side, said, size);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_box(const struct fgv_copy_side *to, const struct fgv_copy_side *from,
                         const struct fgv_copy_size *size, CUstream stream, bool waits)
{
    struct fgv_box box = {.width_bytes = size->width_bytes, .height = size->height, .depth = size->depth};
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS || size->width_bytes == 0 || size->height == 0 || size->depth == 0) {
        return result;
    }
    result = fgv_box_side_check(&box.to, to, size);
    if (result == CUDA_SUCCESS) {
        result = fgv_box_side_check(&box.from, from, size);
    }
    if (result != CUDA_SUCCESS || !stream) {
        return result == CUDA_SUCCESS ? fgv_box_copy(&box, stream, waits) : result;
    }
    result = fgv_box_copy(&box, stream, false);
    return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
}

/* A program sees one device, so any context is that device's. */
static bool is_context(CUcontext context)
{
    return fgv_context_find(context) != NULL;
}

static const struct fgv_copy_ops copy_ops = {.box = copy_box, .is_context = is_context};

__attribute__((constructor)) static void lend_copy_ops(void)
{
    fgv_copy_set_ops(&copy_ops);
}
