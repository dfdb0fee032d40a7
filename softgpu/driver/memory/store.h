/* Stores are memory files of many pieces of physical memory, so that thousands take few descriptors. With the lock. */
#ifndef SOFTGPU_STORE_H
#define SOFTGPU_STORE_H

#include <stdbool.h>
#include <stdint.h>

#define SGP_GRANULARITY_BYTES (UINT64_C(1) << 21) /* of physical memory */

struct sgp_store_place {
    struct sgp_store *store; /* NULL: none */
    uint64_t offset;
    uint64_t bytes; /* whole granules */
};

/* A place of zeros, in a file of at most so many bytes where it is not larger itself; false: the host has none. */
bool sgp_store_take(struct sgp_store_place *place, uint64_t bytes, uint64_t most_bytes);
void sgp_store_give_back(const struct sgp_store_place *place);
int sgp_store_file(const struct sgp_store_place *place);
/* Where the process of kernels has it, too (view.h); 0: nowhere. */
uintptr_t sgp_store_source(const struct sgp_store_place *place);

#endif
