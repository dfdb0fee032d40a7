/*
 * Pages of the region's heap in place of memory of the device: at an address that was reserved, in this process, in the
 * worker and on the device, which reaches them there at any time.
 */
#ifndef FRONTEND_GUEST_PLACED_H
#define FRONTEND_GUEST_PLACED_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* Has the worker put such pages, which begin at `heap` in the heap, in the place of memory of the device that is mapped
 * whole at `address`. Waits for the context's work. */
CUresult fgv_placed_put(uint64_t address, uint64_t bytes, uint64_t heap, uint64_t context);
/* Has it take them out again; `allocation` is what it maps there then, 0: nothing. */
CUresult fgv_placed_remove(uint64_t address, uint64_t allocation, uint64_t context);
/* Puts them there in this process, too, in the place of what is there. A child of it has nothing there. */
bool fgv_placed_map(uint64_t address, uint64_t bytes, uint64_t heap);

#endif
