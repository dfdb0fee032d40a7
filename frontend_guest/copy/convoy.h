/* Chunks of one copy that are on their way, oldest first. */
#ifndef FRONTEND_GUEST_CONVOY_H
#define FRONTEND_GUEST_CONVOY_H

#include <stdint.h>

#include "cuda_api/types.h"

#define FGV_CONVOY_MAX 4u /* enough to keep the device busy, few enough to stay in the cache */

struct fgv_convoy {
    uint32_t chunks[FGV_CONVOY_MAX];
    uint32_t bytes[FGV_CONVOY_MAX];
    uint32_t first;
    uint32_t nr;
};

void fgv_convoy_add(struct fgv_convoy *convoy, uint32_t chunk, uint32_t bytes);
/* The oldest, which must be there. */
uint32_t fgv_convoy_remove(struct fgv_convoy *convoy, uint32_t *bytes);
/*
 * A chunk to fill: a free one, else the oldest of the convoy when it comes back. One that carried data to the device
 * before is preferred: what came from the device is in the processor's cache, whence streaming stores have to drive it
 * out first (docs/lab/copies.md).
 */
CUresult fgv_convoy_chunk(struct fgv_convoy *convoy, uint32_t *chunk);
/* Forgets all: whoever needs a chunk takes them over when the worker is through. */
void fgv_convoy_leave_behind(struct fgv_convoy *convoy);

#endif
