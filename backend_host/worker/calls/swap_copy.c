/* See swap_copy.h. */
#include "calls/swap_copy.h"

#include <stdlib.h>

#include "calls/swap_memory.h"
#include "client/ranges.h"

static struct fgw_swap_copy *copy_at(const struct fgw_range *range)
{
    return (struct fgw_swap_copy *)(uintptr_t)range->owner;
}

struct fgw_swap_copy *fgw_swap_copy_of(struct fgw_worker *worker, const struct fgw_range *extent)
{
    const struct fgw_range *found = fgw_ranges_find(&worker->calls->swap.copies, extent->address);
    return found ? copy_at(found) : NULL;
}

void fgw_swap_copy_keep(struct fgw_worker *worker, const struct fgw_range *extent, void *start)
{
    const uint32_t nr = (uint32_t)(extent->bytes / FGW_PRINT_BYTES);
    struct fgw_swap_copy *copy = calloc(1, sizeof(*copy) + nr * sizeof(copy->blocks[0]));
    if (!copy) {
        fgw_swap_memory_free(worker, start, extent->bytes);
        return;
    }
    copy->start = start;
    copy->nr = nr;
    fgw_ranges_insert(
        &worker->calls->swap.copies,
        (struct fgw_range){.address = extent->address, .bytes = extent->bytes, .owner = (uint64_t)(uintptr_t)copy});
}

void fgw_swap_copy_drop(struct fgw_worker *worker, struct fgw_range *copy)
{
    fgw_swap_memory_free(worker, copy_at(copy)->start, copy->bytes);
    free(copy_at(copy));
    fgw_ranges_erase(&worker->calls->swap.copies, copy);
}

/* The first block behind this one with which it is otherwise. */
static uint32_t end_of_run(const struct fgw_swap_copy *copy, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < copy->nr && copy->blocks[end].moves == copy->blocks[first].moves) {
        end++;
    }
    return end;
}

CUresult fgw_swap_copy_in(const struct fgv_driver *driver, struct fgw_swap_copy *copy, uint64_t address,
                          CUstream stream, uint64_t *copied_bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < copy->nr; i++) {
        copy->blocks[i].moves = !copy->blocks[i].is_zero;
    }
    for (uint32_t first = 0, end; result == CUDA_SUCCESS && first < copy->nr; first = end) {
        end = end_of_run(copy, first);
        const uint64_t offset = first * FGW_PRINT_BYTES, bytes = (end - first) * FGW_PRINT_BYTES;
        if (copy->blocks[first].moves) {
            result = driver->cuMemcpyHtoDAsync_v2(address + offset, (char *)copy->start + offset, bytes, stream);
            *copied_bytes += bytes;
        } else {
            result = driver->cuMemsetD32Async(address + offset, 0, bytes / sizeof(uint32_t), stream);
        }
    }
    return result;
}

struct fgw_compared fgw_swap_copy_compare(const struct fgw_swap_copy *copy, const struct fgw_print *prints)
{
    static const struct fgw_print zeros;
    struct fgw_compared compared = {0};
    for (uint32_t i = 0; prints && i < copy->nr; i++) {
        const struct fgw_swap_block *block = &copy->blocks[i];
        if (block->is_known || block->is_zero) {
            fgw_print_compare(block->is_zero ? &zeros : &block->print, &prints[i], &compared);
        }
    }
    return compared;
}

/* What is copied over is not what its print says, until all of it is there. */
static void choose(struct fgw_swap_copy *copy, const struct fgw_print *prints)
{
    for (uint32_t i = 0; i < copy->nr; i++) {
        struct fgw_swap_block *block = &copy->blocks[i];
        const bool is_kept = block->is_known && prints && fgw_print_is_same(&block->print, &prints[i]);
        block->moves = !is_kept && !(prints && fgw_print_is_zero(&prints[i]));
        block->is_known &= !block->moves;
    }
}

CUresult fgw_swap_copy_out(const struct fgv_driver *driver, struct fgw_swap_copy *copy, uint64_t address,
                           const struct fgw_print *prints, CUstream stream, uint64_t *copied_bytes)
{
    CUresult result = CUDA_SUCCESS;
    choose(copy, prints);
    for (uint32_t first = 0, end; result == CUDA_SUCCESS && first < copy->nr; first = end) {
        end = end_of_run(copy, first);
        const uint64_t offset = first * FGW_PRINT_BYTES, bytes = (end - first) * FGW_PRINT_BYTES;
        if (copy->blocks[first].moves) {
            result = driver->cuMemcpyDtoHAsync_v2((char *)copy->start + offset, address + offset, bytes, stream);
            *copied_bytes += bytes;
        }
    }
    return result;
}

void fgw_swap_copy_fill(struct fgw_swap_copy *copy, const struct fgw_print *prints)
{
    for (uint32_t i = 0; i < copy->nr; i++) {
        struct fgw_swap_block *block = &copy->blocks[i];
        block->is_zero = prints && fgw_print_is_zero(&prints[i]);
        block->is_known = prints && !block->is_zero;
        block->print = prints ? prints[i] : (struct fgw_print){0};
    }
    copy->is_filled = true;
}
