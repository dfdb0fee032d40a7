/*
 * Pooled memory that the program freed in a stream and may ask for again in the same one. CUDA's order makes that safe
 * without a word to the host: what uses the memory next comes after what used it last. A training step, which frees and
 * allocates the same sizes each time, then waits for nobody.
 *
 * A pool's memory is kept only as far as the program lets the pool keep it (its release threshold, 0 at first), and up
 * to a part of the device's memory. What is displaced is freed in its stream, as if it were freed only now.
 */
#ifndef FRONTEND_GUEST_POOL_CACHE_H
#define FRONTEND_GUEST_POOL_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* Where memory may be used again. */
struct fgv_pool_place {
    uint64_t pool, stream, context; /* handles; the stream's as it is on the wire */
};

/* Memory of exactly this size; false when none is kept. */
bool fgv_pool_cache_take(const struct fgv_pool_place *place, uint64_t bytes, uint64_t *address);
/* Keeps freed memory; false when it is to be freed instead. threshold_bytes: what the pool may keep. */
bool fgv_pool_cache_give(const struct fgv_pool_place *place, uint64_t bytes, uint64_t address, uint64_t threshold_bytes,
                         uint64_t limit_bytes);
/* Frees what is kept: of a pool (0: of all; false: there was nothing), of a stream that is about to go. */
bool fgv_pool_cache_flush(uint64_t pool);
void fgv_pool_cache_flush_stream(uint64_t stream);
/* The worker freed all of it. */
void fgv_pool_cache_forget_context(uint64_t context);

#endif
