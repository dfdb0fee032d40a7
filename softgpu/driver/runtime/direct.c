/*
 * Launches in this process: what a kernel reads beside the program's memory, and what the driver does for one that
 * prints and allocates.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/reach.h"
#include "device/printf.h"
#include "memory/memory_map.h"
#include "runtime/records.h"

/* What cooperative groups expect at the address in %envreg1 and %envreg2: zeros but for the size. */
struct grid_workspace {
    uint32_t bytes;
    uint32_t barrier;
    uint32_t reserved[62];
};

/* Of a kernel that has the device. */
struct launch_area {
    struct grid_workspace workspace;
    uint8_t parameters[SGP_MAX_PARAMETERS_BYTES] __attribute__((aligned(16)));
};

static struct launch_area *areas[SGP_MAX_DEVICES]; /* one for each stand */

bool sgp_launch_area_map(int device)
{
    areas[device] = sgp_reach_map(SGP_NR_STANDS * sizeof(**areas), PROT_READ | PROT_WRITE, 0);
    return areas[device];
}

static void print(struct sgp_grid *grid, const char *text, size_t bytes)
{
    sgp_printf_append(grid->context->printf_buffer, text, bytes);
}

static void *allocate(struct sgp_grid *grid, uint64_t bytes)
{
    struct CUctx_st *context = grid->context;
    void *address = NULL;

    sgp_lock();
    if (bytes && bytes <= context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] &&
        context->device_heap_bytes <= context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] - bytes &&
        sgp_memory_new(context, bytes, SGP_MEMORY_HEAP, &address) == CUDA_SUCCESS) {
        context->device_heap_bytes += bytes;
    }
    sgp_unlock();
    return address;
}

static bool free_of_kernel(struct sgp_grid *grid, void *pointer)
{
    struct sgp_allocation *allocation;
    bool is_its_own;

    sgp_lock();
    allocation = sgp_memory_find((uintptr_t)pointer);
    is_its_own = allocation && allocation->kind == SGP_MEMORY_HEAP && allocation->start == (uintptr_t)pointer &&
                 allocation->context == grid->context;
    if (is_its_own) {
        grid->context->device_heap_bytes -= allocation->bytes;
        sgp_memory_delete(allocation);
    }
    sgp_unlock();
    return is_its_own;
}

static uint32_t place(struct sgp_grid *grid, uint32_t left, uint32_t wish)
{
    return sgp_run_place(grid->run, left, wish);
}

const struct sgp_services sgp_services_direct = {
    .print = print, .allocate = allocate, .free = free_of_kernel, .place = place};

CUresult sgp_launch_here(struct sgp_grid *grid, int device, const struct sgp_services *services)
{
    struct launch_area *area = &areas[device][grid->stand];

    memcpy(area->parameters, grid->parameters, grid->kernel->parameters_bytes);
    area->workspace = (struct grid_workspace){.bytes = sizeof(area->workspace)};
    grid->parameters = area->parameters;
    grid->workspace = grid->is_cooperative ? &area->workspace : NULL;
    grid->services = services;
    return sgp_grid_run(grid);
}
