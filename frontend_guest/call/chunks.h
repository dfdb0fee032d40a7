/*
 * Chunks of the arena, as the guest hands them out. A chunk that was sent off with data nobody waits for is `left
 * behind`: its owner forgot it, and whoever needs one takes it over once the worker is through with it.
 */
#ifndef FRONTEND_GUEST_CHUNKS_H
#define FRONTEND_GUEST_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "region/client.h"

static inline uint8_t *fgv_chunk_memory(uint32_t chunk)
{
    return fgv_guest.arena + (uint64_t)chunk * fgv_guest.chunk_bytes;
}
/* As an offset in the arena, which is how requests name it. */
static inline uint64_t fgv_chunk_offset(uint32_t chunk)
{
    return (uint64_t)chunk * fgv_guest.chunk_bytes;
}

/* What goes to the device, into a chunk. */
void fgv_chunk_stage(uint8_t *chunk, const uint8_t *from, uint64_t bytes);

/* A chunk, now; false when none is to be had. Of those left behind only if there is no other. */
bool fgv_chunk_try(uint32_t *chunk);
/* One that was left behind and that the worker is through with, now. */
bool fgv_chunk_take_over(uint32_t *chunk);
/* A chunk, waiting for the worker, whose it is to fill and to free, and for one to be had; or what a lost client gives.
 */
CUresult fgv_chunk_take(uint32_t *chunk);
void fgv_chunk_give(uint32_t chunk);
/* Before the request that hands it to the worker is published. */
void fgv_chunk_arm(uint32_t chunk);
/* Waits until the worker completed it; its result, or what a lost client gives. */
CUresult fgv_chunk_wait(uint32_t chunk);
void fgv_chunk_leave_behind(uint32_t chunk);

#endif
