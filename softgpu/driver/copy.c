/*
 * Copies and sets. All forms are boxes of rows: a linear copy is one row.
 *
 * Pageable host memory belongs to the caller again when the call returns, even an asynchronous one: small sources are
 * staged, large ones and pageable destinations are waited for, as CUDA does.
 */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "cuda_api/prototypes.h"
#include "memory.h"
#include "runtime/runtime.h"

#define MAX_STAGED_BYTES 65536u

struct copy_command {
    struct sgp_command command;
    struct sgp_box box;
    uint8_t staged[];
};

struct set_command {
    struct sgp_command command;
    uint8_t *destination;
    size_t pitch;
    size_t width; /* in elements */
    size_t height;
    uint32_t value;
    uint32_t element_bytes;
};

static void finish(struct sgp_command *command)
{
    free(command);
}

static CUresult copy_run(struct sgp_command *command)
{
    const struct sgp_box *box = &((struct copy_command *)command)->box;

    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++)
            memmove((void *)(box->destination + z * box->destination_slice + y * box->destination_pitch),
                    (const void *)(box->source + z * box->source_slice + y * box->source_pitch), box->width);
    return CUDA_SUCCESS;
}

/* From the first byte to the last; false: the box has no end that can be written down. */
static bool box_span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice, uint64_t *bytes)
{
    uint64_t rows, slices;

    if (__builtin_mul_overflow(height - 1, pitch, &rows) || __builtin_mul_overflow(depth - 1, slice, &slices))
        return false;
    return !__builtin_add_overflow(rows, slices, bytes) && !__builtin_add_overflow(*bytes, width, bytes);
}

static bool is_pageable(uintptr_t address)
{
    return !sgp_memory_find(address);
}

CUresult sgp_copy(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_box *box, bool is_async)
{
    uint64_t source_bytes, destination_bytes;
    struct copy_command *copy;
    bool is_staged, waits;

    if (!box->width || !box->height || !box->depth)
        return CUDA_SUCCESS;
    if (!box_span(box->width, box->height, box->depth, box->source_pitch, box->source_slice, &source_bytes) ||
        !box_span(box->width, box->height, box->depth, box->destination_pitch, box->destination_slice,
                  &destination_bytes) ||
        !sgp_memory_range_ok(box->source, source_bytes, box->source_is_device) ||
        !sgp_memory_range_ok(box->destination, destination_bytes, box->destination_is_device))
        return CUDA_ERROR_INVALID_VALUE;
    is_staged = is_async && is_pageable(box->source) && source_bytes <= MAX_STAGED_BYTES;
    waits = !is_async || is_pageable(box->destination) || (is_pageable(box->source) && !is_staged);
    copy = malloc(sizeof(*copy) + (is_staged ? source_bytes : 0));
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(copy, 0, sizeof(*copy));
    copy->command.run = copy_run;
    copy->command.finish = finish;
    copy->box = *box;
    if (is_staged) {
        memcpy(copy->staged, (const void *)box->source, source_bytes);
        copy->box.source = (uintptr_t)copy->staged;
    }
    if (!waits)
        return sgp_queue_submit(stream, &copy->command, NULL);
    sgp_object_hold(context);
    CUresult result = sgp_queue_submit_and_wait(stream, &copy->command);
    sgp_printf_flush(context);
    sgp_object_release(context);
    return result;
}

static CUresult linear(CUdeviceptr destination, bool destination_is_device, CUdeviceptr source, bool source_is_device,
                       size_t bytes, CUstream handle, bool is_async)
{
    struct sgp_box box = {
        .destination = destination,
        .source = source,
        .destination_is_device = destination_is_device,
        .source_is_device = source_is_device,
        .width = bytes,
        .height = 1,
        .depth = 1,
    };
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = sgp_enter(&context);

    if (result)
        return result;
    result = sgp_stream_resolve(context, handle, &stream);
    return sgp_leave(result ? result : sgp_copy(stream->context, stream, &box, is_async));
}

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

SGP_EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return linear(dst, false, src, false, ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return linear(dst, false, src, false, ByteCount, hStream, true);
}

SGP_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return linear(dstDevice, true, address_of(srcHost), false, ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return linear(dstDevice, true, address_of(srcHost), false, ByteCount, hStream, true);
}

SGP_EXPORT CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return linear(address_of(dstHost), false, srcDevice, true, ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return linear(address_of(dstHost), false, srcDevice, true, ByteCount, hStream, true);
}

SGP_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return linear(dstDevice, true, srcDevice, true, ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                         CUstream hStream)
{
    return linear(dstDevice, true, srcDevice, true, ByteCount, hStream, true);
}

/* Every device's memory is in this process: a copy between two is a copy. */
static CUresult peer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                     CUcontext source_context, size_t bytes, CUstream handle, bool is_async)
{
    CUresult result = sgp_enter_driver();

    if (result)
        return result;
    if (!sgp_object_is(destination_context, SGP_CONTEXT) || !sgp_object_is(source_context, SGP_CONTEXT))
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    sgp_unlock();
    return linear(destination, true, source, true, bytes, handle, is_async);
}

SGP_EXPORT CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                 CUcontext srcContext, size_t ByteCount)
{
    return peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, NULL, false);
}

SGP_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                      CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    return peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream, true);
}

static CUresult set_run(struct sgp_command *command)
{
    const struct set_command *set = (struct set_command *)command;

    for (size_t y = 0; y < set->height; y++) {
        uint8_t *row = set->destination + y * set->pitch;

        if (set->element_bytes == 1)
            memset(row, (int)set->value, set->width);
        else if (set->element_bytes == 2)
            for (size_t x = 0; x < set->width; x++)
                ((uint16_t *)row)[x] = (uint16_t)set->value;
        else
            for (size_t x = 0; x < set->width; x++)
                ((uint32_t *)row)[x] = set->value;
    }
    return CUDA_SUCCESS;
}

CUresult sgp_set(CUdeviceptr destination, size_t pitch, uint32_t value, uint32_t element_bytes, size_t width,
                 size_t height, CUstream handle, bool is_async)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct set_command *set;
    uint64_t row_bytes, bytes;
    CUresult result = sgp_enter(&context);

    if (result)
        return result;
    result = sgp_stream_resolve(context, handle, &stream);
    if (result || !width || !height)
        return sgp_leave(result);
    if (__builtin_mul_overflow(width, element_bytes, &row_bytes) || !box_span(row_bytes, height, 1, pitch, 0, &bytes) ||
        (height > 1 && pitch < row_bytes) || destination % element_bytes || (height > 1 && pitch % element_bytes) ||
        !sgp_memory_range_ok(destination, bytes, true))
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    set = calloc(1, sizeof(*set));
    if (!set)
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *set = (struct set_command){
        .command = {.run = set_run, .finish = finish},
        .destination = (uint8_t *)(uintptr_t)destination,
        .pitch = pitch,
        .width = width,
        .height = height,
        .value = value,
        .element_bytes = element_bytes,
    };
    if (is_async)
        return sgp_leave(sgp_queue_submit(stream, &set->command, NULL));
    return sgp_leave(sgp_queue_submit_and_wait(stream, &set->command));
}
