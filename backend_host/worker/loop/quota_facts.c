/*
 * What the daemon needs to know of the table and of a facts block, in the one module that is built from both.
 */
#include "cuda_api/facts.h"
#include "cuda_api/wire.h"
#include "loop/face.h"

uint64_t fgw_table_hash(void)
{
    return FGV_TABLE_HASH;
}

bool fgw_facts_limit(void *facts, uint32_t nr_bytes, uint64_t quota_bytes)
{
    struct fgv_facts *block = facts;
    if (nr_bytes < sizeof(*block) || block->nr_devices > FGV_FACTS_MAX_DEVICES) {
        return false;
    }
    for (uint32_t device = 0; device < block->nr_devices; device++) {
        if (block->devices[device].total_bytes > quota_bytes) {
            block->devices[device].total_bytes = quota_bytes;
        }
    }
    return true;
}
