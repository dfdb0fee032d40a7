/*
 * Copies and sets. All forms are boxes of rows: a linear copy is one row.
 *
 * Pageable host memory belongs to the caller again when the call returns, even an asynchronous one: small sources are
 * staged, large ones and pageable destinations are waited for, as CUDA does.
 */
#include "work/copy.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_api/prototypes.h"
#include "device/printf.h"
#include "memory/memory_map.h"
#include "stream/capture.h"
#include "stream/queue.h"
#include "stream/stream.h"

#define MAX_STAGED_BYTES 65536u

struct copy_command {
    struct sgp_command command;
    struct sgp_box box;
    uint8_t staged[];
};

struct set_command {
    struct sgp_command command;
    CUDA_MEMSET_NODE_PARAMS set;
};

static CUresult copy_run(struct sgp_command *command)
{
    const struct sgp_box *box = &((struct copy_command *)command)->box;

    for (size_t z = 0; z < box->depth; z++) {
        for (size_t y = 0; y < box->height; y++) {
            memmove((void *)(box->destination + z * box->destination_slice + y * box->destination_pitch),
                    (const void *)(box->source + z * box->source_slice + y * box->source_pitch), box->width);
        }
    }
    return CUDA_SUCCESS;
}

/* From the first byte to the last; false: the box has no end that can be written down. */
static bool box_span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice, uint64_t *bytes)
{
    uint64_t rows, slices;

    if (__builtin_mul_overflow(height - 1, pitch, &rows) || __builtin_mul_overflow(depth - 1, slice, &slices)) {
        return false;
    }
    return !__builtin_add_overflow(rows, slices, bytes) && !__builtin_add_overflow(*bytes, width, bytes);
}

static bool is_pageable(uintptr_t address)
{
    return !sgp_memory_find(address);
}

CUresult sgp_box_check(const struct sgp_box *box)
{
    uint64_t source_bytes, destination_bytes;

    if (!box->width || !box->height || !box->depth) {
        return CUDA_SUCCESS;
    }
    if (!box_span(box->width, box->height, box->depth, box->source_pitch, box->source_slice, &source_bytes) ||
        !box_span(box->width, box->height, box->depth, box->destination_pitch, box->destination_slice,
                  &destination_bytes) ||
        !sgp_memory_range_ok(box->source, source_bytes, box->source_is_device, CU_MEM_ACCESS_FLAGS_PROT_READ) ||
        !sgp_memory_range_ok(box->destination, destination_bytes, box->destination_is_device,
                             CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* A command that copies the box, with room for staged bytes. */
static struct copy_command *copy_new(const struct sgp_box *box, uint64_t staged_bytes)
{
    struct copy_command *copy = malloc(sizeof(*copy) + staged_bytes);

    if (copy) {
        memset(copy, 0, sizeof(*copy));
        copy->command.run = copy_run;
        copy->command.finish = sgp_command_free;
        copy->box = *box;
    }
    return copy;
}

/* Of memory that is no more: what a device finds when it comes to it. */
static CUresult fault_run(struct sgp_command *command)
{
    (void)command;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult sgp_box_submit(struct CUstream_st *stream, const struct sgp_box *box)
{
    struct copy_command *copy = copy_new(box, 0);

    if (!copy) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    copy->command.run = sgp_box_check(box) ? fault_run : copy_run;
    return sgp_queue_submit(stream, &copy->command, NULL);
}

bool sgp_box_is_pageable(const struct sgp_box *box)
{
    return is_pageable(box->source) || is_pageable(box->destination);
}

CUresult sgp_copy(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_box *box, bool is_async)
{
    uint64_t source_bytes = 0;
    struct copy_command *copy;
    bool is_staged, waits;
    CUresult result = sgp_box_check(box);

    if (result || !box->width || !box->height || !box->depth) {
        return result;
    }
    if (stream->capture && is_async) {
        return stream->capture->sink->copy(context, stream, box);
    }
    box_span(box->width, box->height, box->depth, box->source_pitch, box->source_slice, &source_bytes);
    is_staged = is_async && is_pageable(box->source) && source_bytes <= MAX_STAGED_BYTES;
    waits = !is_async || is_pageable(box->destination) || (is_pageable(box->source) && !is_staged);
    copy = copy_new(box, is_staged ? source_bytes : 0);
    if (!copy) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (is_staged) {
        memcpy(copy->staged, (const void *)box->source, source_bytes);
        copy->box.source = (uintptr_t)copy->staged;
    }
    if (!waits) {
        return sgp_queue_submit(stream, &copy->command, NULL);
    }
    sgp_object_keep(context);
    result = sgp_queue_submit_and_wait(stream, &copy->command);
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
    CUresult result = sgp_enter_by(handle, &context);

    if (result) {
        return result;
    }
    result = sgp_stream_resolve(context, handle, &stream);
    return sgp_leave(result ? result : sgp_copy(stream->object.context, stream, &box, is_async));
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

    if (result) {
        return result;
    }
    if ((destination_context && !sgp_object_is(destination_context, SGP_CONTEXT)) ||
        (source_context && !sgp_object_is(source_context, SGP_CONTEXT))) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
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
    const CUDA_MEMSET_NODE_PARAMS *set = &((struct set_command *)command)->set;

    for (size_t y = 0; y < set->height; y++) {
        uint8_t *row = (uint8_t *)(uintptr_t)set->dst + y * set->pitch;

        if (set->elementSize == 1) {
            memset(row, (int)set->value, set->width);
        } else if (set->elementSize == 2) {
            for (size_t x = 0; x < set->width; x++) {
                ((uint16_t *)row)[x] = (uint16_t)set->value;
            }
        } else {
            for (size_t x = 0; x < set->width; x++) {
                ((uint32_t *)row)[x] = set->value;
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult sgp_set_check(const CUDA_MEMSET_NODE_PARAMS *set)
{
    uint32_t element_bytes = set->elementSize;
    uint64_t row_bytes, bytes;

    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!set->width || !set->height) {
        return CUDA_SUCCESS;
    }
    if (__builtin_mul_overflow(set->width, element_bytes, &row_bytes) ||
        !box_span(row_bytes, set->height, 1, set->pitch, 0, &bytes) || (set->height > 1 && set->pitch < row_bytes) ||
        set->dst % element_bytes || (set->height > 1 && set->pitch % element_bytes) ||
        !sgp_memory_range_ok(set->dst, bytes, true, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static struct set_command *set_new(const CUDA_MEMSET_NODE_PARAMS *set)
{
    struct set_command *command = calloc(1, sizeof(*command));

    if (command) {
        *command = (struct set_command){.command = {.run = set_run, .finish = sgp_command_free}, .set = *set};
    }
    return command;
}

CUresult sgp_set_submit(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set)
{
    struct set_command *command = set_new(set);

    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    command->command.run = sgp_set_check(set) ? fault_run : set_run;
    return sgp_queue_submit(stream, &command->command, NULL);
}

CUresult sgp_set(CUdeviceptr destination, size_t pitch, uint32_t value, uint32_t element_bytes, size_t width,
                 size_t height, CUstream handle, bool is_async)
{
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = destination,
        .pitch = pitch,
        .value = value,
        .elementSize = element_bytes,
        .width = width,
        .height = height,
    };
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct set_command *command;
    CUresult result = sgp_enter_by(handle, &context);

    if (result) {
        return result;
    }
    result = sgp_stream_resolve(context, handle, &stream);
    if (!result) {
        result = sgp_set_check(&set);
    }
    if (result || !width || !height) {
        return sgp_leave(result);
    }
    if (stream->capture && is_async) {
        return sgp_leave(stream->capture->sink->set(context, stream, &set));
    }
    if (is_async) {
        return sgp_leave(sgp_set_submit(stream, &set));
    }
    command = set_new(&set);
    if (!command) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    return sgp_leave(sgp_queue_submit_and_wait(stream, &command->command));
}
