/* Device memory at an address that the program has nothing at, for this library's own use. */
#ifndef FRONTEND_GUEST_VIRTUAL_MEMORY_H
#define FRONTEND_GUEST_VIRTUAL_MEMORY_H

#include <stdint.h>

#include "cuda_api/types.h"

/* Mappings begin at multiples of this, and are as long. */
#define FGV_MAPPING_BYTES (UINT64_C(1) << 21)

struct fgv_mapping {
    uint64_t address; /* in this process nothing can come to lie there (reservation.c) */
    uint64_t bytes;
    uint64_t handle; /* of its memory; 0: it has none, nothing of the device is mapped there */
};

/* Fills `address` and `handle`. CUDA_ERROR_OUT_OF_MEMORY: no room on the device, or no address that is free on both
 * sides. */
CUresult fgv_mapping_make(struct fgv_mapping *mapping);
void fgv_mapping_drop(struct fgv_mapping *mapping);
/* Memory for a mapping that has none, not mapped yet; and none any more, where it is not mapped. */
CUresult fgv_mapping_take_memory(struct fgv_mapping *mapping);
void fgv_mapping_give_memory(struct fgv_mapping *mapping);

#endif
