/* What the program said about its managed memory: kept, and given back (cuda_api/advice.h). Any thread. */
#ifndef FRONTEND_GUEST_SAID_H
#define FRONTEND_GUEST_SAID_H

#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_range;

/* Of bytes that are managed memory. */
CUresult fgv_said_advise(uint64_t address, uint64_t bytes, CUmem_advise what, CUmemLocation location);
CUresult fgv_said_prefetch(uint64_t address, uint64_t bytes, CUmemLocation location);
CUresult fgv_said_get(uint64_t address, uint64_t bytes, CUmem_range_attribute attribute, void *data,
                      uint64_t data_bytes);
/* How many of them are to stay with the CPU. */
uint64_t fgv_said_host_bytes(uint64_t address, uint64_t bytes);
/* The memory is gone. */
void fgv_said_forget(const struct fgv_range *range);

#endif
