/*
 * What one pool holds: its growth, and what it gives back; and what all of the client's count against the quota.
 *
 * Pools keep memory that was freed, so a quota on what is allocated would bound nothing. What counts is the larger of
 * what the client has allocated and what its pools hold together, less one step, which is the host's affair as any
 * rounding is.
 */
#ifndef BACKEND_HOST_WORKER_POOL_HOLDING_H
#define BACKEND_HOST_WORKER_POOL_HOLDING_H

#include "calls/state.h"

/* Blocks wait for streams, which stay as long. */
extern const struct fgw_block_hooks fgw_pool_hooks;
bool fgw_pool_is_done(const struct fgw_stream *stream, uint64_t seq);

/* Tells whether nothing of the client's runs, or may. */
bool fgw_pool_is_idle(const struct fgw_worker *worker);
/* Counts what the pool, which may have changed, holds now: against the quota that is no more than was counted before.
 */
void fgw_pool_count(struct fgw_worker *worker, struct fgw_memory_pool *pool);
/* Gives back what is free, down to so much. */
void fgw_pool_give_back(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t keep_bytes);
/* A block for this stream, which is paid for; the pool grows if it must. */
CUresult fgw_pool_take(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes,
                       const struct fgw_stream *stream, struct fgw_block **block);

#endif
