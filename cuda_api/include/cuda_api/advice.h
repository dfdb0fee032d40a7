/*
 * What a program said about its managed memory: advice, and where it was last prefetched to. Nothing follows from it
 * where managed memory never moves; it is kept because programs ask for it again.
 *
 * The caller holds a lock, and has made sure that the bytes are managed memory.
 */
#ifndef CUDA_API_ADVICE_H
#define CUDA_API_ADVICE_H

#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_advice_range;

/* Ranges about which something was said, sorted and disjoint. All zero: nothing was. */
struct fgv_advice {
    struct fgv_advice_range *ranges;
    uint32_t nr, room;
};

/* nr_devices: of the program. CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult fgv_advice_set(struct fgv_advice *advice, uint64_t address, uint64_t bytes, CUmem_advise what,
                        CUmemLocation location, int nr_devices);
CUresult fgv_advice_prefetched(struct fgv_advice *advice, uint64_t address, uint64_t bytes, CUmemLocation location,
                               int nr_devices);
/* What holds for all of the bytes, as cuMemRangeGetAttribute gives it. */
CUresult fgv_advice_get(const struct fgv_advice *advice, uint64_t address, uint64_t bytes,
                        CUmem_range_attribute attribute, void *data, uint64_t data_bytes);
/* How many of the bytes are to stay with the CPU. What is read mostly is not: each reader has a copy of its own. */
uint64_t fgv_advice_host_bytes(const struct fgv_advice *advice, uint64_t address, uint64_t bytes);
/* The memory is gone. */
void fgv_advice_forget(struct fgv_advice *advice, uint64_t address, uint64_t bytes);

/* CU_DEVICE_CPU or a device's number, as the first versions of the calls name a place. */
static inline CUmemLocation fgv_advice_location(CUdevice device)
{
    return (CUmemLocation){.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = device == CU_DEVICE_CPU ? 0 : device};
}

#endif
