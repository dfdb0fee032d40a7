/*
 * In place of calls/swap_memory.c, whose thread the stand-in could not serve: pieces are made where they are asked for,
 * and are there with the next look. Large ones are never to be had.
 */
#include <stdlib.h>

#include "calls/swap_memory.h"
#include "objects.h"
#include "stand_in.h"

#define MOST_BYTES (UINT64_C(8) << 20)

struct fgw_swap_memory {
    const struct fgv_driver *driver;
    CUcontext context;
    uint64_t asked_bytes;
    struct fgw_printer printer;
    bool has_printer;
};

struct fgw_swap_memory *fgw_swap_memory_new(struct fgw_worker *worker, CUcontext context)
{
    struct fgw_swap_memory *memory = calloc(1, sizeof(*memory));
    memory->driver = &worker->driver;
    memory->context = context;
    memory->has_printer = fgw_printer_make(memory->driver, NULL, &memory->printer);
    if (memory->has_printer) {
        stand_excuse(((struct stand_object *)memory->printer.kernel)->parent); /* it goes with the context */
    }
    return memory;
}

void *fgw_swap_memory_take(struct fgw_swap_memory *memory, uint64_t bytes)
{
    const bool is_there = memory->asked_bytes == bytes && bytes <= MOST_BYTES && !stand_is_busy();
    memory->asked_bytes = is_there ? 0 : bytes;
    return is_there ? calloc(1, bytes) : NULL;
}

bool fgw_swap_memory_has_failed(struct fgw_swap_memory *memory)
{
    return memory->asked_bytes > MOST_BYTES;
}

const struct fgw_printer *fgw_swap_memory_printer(struct fgw_swap_memory *memory)
{
    return memory && memory->has_printer ? &memory->printer : NULL;
}

void fgw_swap_memory_free(struct fgw_worker *worker, void *start, uint64_t bytes)
{
    (void)worker;
    (void)bytes;
    free(start);
}

bool fgw_swap_memory_is_of(const struct fgw_swap_memory *memory, CUcontext context)
{
    return memory && memory->context == context;
}

void fgw_swap_memory_end(struct fgw_swap_memory *memory)
{
    if (memory && memory->has_printer) {
        fgw_printer_unmake(memory->driver, &memory->printer);
    }
    free(memory);
}
