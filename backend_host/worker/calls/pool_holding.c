/*
 * See pool_holding.h. A pool grows in segments of the span by steps, is cut into blocks (pool_blocks.h), and gives
 * back, extent by extent, what nobody waits for. Where there is no span each step is a piece of the driver's, which
 * goes back whole; so it is in a pool whose pieces other programs can have (sharing.c).
 */
#include "calls/pool_holding.h"

#include "calls/exports.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/state.h"
#include "client/stream.h"
#include "page/account.h"
#include "page/room.h"
#include "track/state.h"

/* Of the span's addresses a segment takes as much, so that a pool grows in place: the default one's is as large as the
 * device's memory. */
#define DEFAULT_DIVISOR 4u
#define SEGMENT_DIVISOR 64u

bool fgw_pool_is_done(const struct fgw_stream *stream, uint64_t seq)
{
    return stream->done_seq >= seq;
}

static void left(struct fgw_stream *stream)
{
    stream->nr_waiters--;
    fgw_stream_free_if_unused(stream);
}

const struct fgw_block_hooks fgw_pool_hooks = {.is_done = fgw_pool_is_done, .left = left};

/* ---- the quota ---- */

/* Counts what all pools hold, with so much that one is to get; false when the quota has less. */
static bool charge(struct fgw_worker *worker, uint64_t live_bytes, uint64_t reserved_bytes)
{
    struct fgw_memory_pools *pools = &worker->calls->pools;
    for (const struct fgw_memory_pool *pool = pools->first; pool; pool = pool->next) {
        live_bytes += pool->live_bytes;
        reserved_bytes += pool->blocks.reserved_bytes;
    }
    const uint64_t kept_bytes = reserved_bytes > FGW_POOL_STEP ? reserved_bytes - FGW_POOL_STEP : 0;
    const uint64_t due_bytes = kept_bytes > live_bytes ? kept_bytes : live_bytes;
    if (due_bytes <= pools->counted_bytes) {
        fgw_quota_give(&worker->grantee, pools->counted_bytes - due_bytes);
    } else if (!fgw_quota_take(&worker->grantee, due_bytes - pools->counted_bytes)) {
        return false;
    }
    pools->counted_bytes = due_bytes;
    return true;
}

void fgw_pool_count(struct fgw_worker *worker, struct fgw_memory_pool *pool)
{
    const uint64_t placed_bytes = worker->calls->span.bytes == 0 ? pool->blocks.reserved_bytes : 0;
    charge(worker, 0, 0);
    fgw_room_unplace(&worker->grantee, pool->placed_bytes - placed_bytes);
    pool->placed_bytes = placed_bytes;
    if (pool->blocks.reserved_bytes > pool->reserved_high_bytes) {
        pool->reserved_high_bytes = pool->blocks.reserved_bytes;
    }
    if (pool->live_bytes > pool->used_high_bytes) {
        pool->used_high_bytes = pool->live_bytes;
    }
}

/* ---- holes ---- */

/* Gives the first bytes of a hole memory. */
static CUresult fill(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_block *hole, uint64_t bytes)
{
    const uint64_t address = hole->address;
    uint64_t dropped_bytes = 0;
    CUresult result = fgw_span_fill(worker, address, bytes);
    if (result == CUDA_SUCCESS && !fgw_blocks_filled(&pool->blocks, hole, bytes)) {
        fgw_span_empty(worker, address, bytes, &dropped_bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* ---- giving back ---- */

bool fgw_pool_is_idle(const struct fgw_worker *worker)
{
    return fgw_track_nr_open(worker) == 0 && worker->track->behind.nr == 0;
}

/* Of what the pool holds beyond what it is to keep: whole steps. */
static uint64_t spare_bytes(const struct fgw_memory_pool *pool, uint64_t keep_bytes)
{
    const uint64_t reserved_bytes = pool->blocks.reserved_bytes;
    return reserved_bytes > keep_bytes ? (reserved_bytes - keep_bytes) / FGW_POOL_STEP * FGW_POOL_STEP : 0;
}

/* Of a free block: its last whole extent. That is as large as what the pool grew by, so some of it may be kept: that is
 * made anew. False: there is none, or nothing to spare. */
static bool release_extent(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_block *block,
                           uint64_t keep_bytes)
{
    const uint64_t most_bytes = spare_bytes(pool, keep_bytes);
    struct fgw_range extent;
    uint64_t dropped_bytes = 0;
    if (most_bytes == 0 || !fgw_span_last_whole(worker, block->address, block->bytes, &extent)) {
        return false;
    }
    struct fgw_block *hole = fgw_blocks_emptied(&pool->blocks, block, extent.address, extent.bytes);
    if (hole && fgw_span_empty(worker, extent.address, extent.bytes, &dropped_bytes) == CUDA_SUCCESS &&
        extent.bytes > most_bytes) {
        fill(worker, pool, hole, extent.bytes - most_bytes); /* where there is no memory any more, less is kept */
    }
    return hole != NULL;
}

static void release_in_segment(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_segment *segment,
                               uint64_t keep_bytes)
{
    for (struct fgw_block *block = segment->first; block;) {
        const bool is_released = block->state == FGW_BLOCK_FREE && release_extent(worker, pool, block, keep_bytes);
        block = is_released ? segment->first : block->behind;
    }
    if (!segment->first->behind && segment->first->state == FGW_BLOCK_HOLE) {
        const uint64_t address = segment->address;
        fgw_blocks_remove(&pool->blocks, segment);
        fgw_span_give(worker, address);
    }
}

/* One of the driver's would wait for work that runs. */
static void release_piece(struct fgw_worker *worker, struct fgw_memory_pool *pool, struct fgw_segment *segment,
                          uint64_t keep_bytes)
{
    const uint64_t address = segment->address, bytes = segment->bytes;
    if (!segment->first->behind && segment->first->state == FGW_BLOCK_FREE &&
        (worker->calls->span.bytes != 0 || fgw_pool_is_idle(worker)) && bytes <= spare_bytes(pool, keep_bytes)) {
        fgw_exports_forget(worker, address);
        fgw_blocks_remove(&pool->blocks, segment);
        fgw_span_free(worker, address, bytes);
    }
}

static bool is_in_pieces(const struct fgw_worker *worker, const struct fgw_memory_pool *pool)
{
    return worker->calls->span.bytes == 0 || pool->is_shareable;
}

void fgw_pool_give_back(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t keep_bytes)
{
    fgw_blocks_settle(&pool->blocks, &fgw_pool_hooks);
    for (struct fgw_segment *segment = pool->blocks.segments; segment;) {
        struct fgw_segment *next = segment->next;
        if (is_in_pieces(worker, pool)) {
            release_piece(worker, pool, segment, keep_bytes);
        } else {
            release_in_segment(worker, pool, segment, keep_bytes);
        }
        segment = next;
    }
    fgw_pool_count(worker, pool);
}

/* ---- growing ---- */

static uint64_t round_to_steps(uint64_t bytes)
{
    return (bytes + FGW_POOL_STEP - 1) / FGW_POOL_STEP * FGW_POOL_STEP;
}

/* Addresses to grow into. */
static CUresult add_segment(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    const struct fgw_span *span = &worker->calls->span;
    const bool is_default = pool == worker->calls->pools.by_default;
    const uint64_t share_bytes = round_to_steps(span->bytes / (is_default ? DEFAULT_DIVISOR : SEGMENT_DIVISOR));
    uint64_t segment_bytes = share_bytes > round_to_steps(bytes) ? share_bytes : round_to_steps(bytes), address;
    if (bytes > span->bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!fgw_span_take(worker, segment_bytes, &address)) {
        segment_bytes = round_to_steps(bytes);
        if (!fgw_span_take(worker, segment_bytes, &address)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (!fgw_blocks_add(&pool->blocks, address, segment_bytes, NULL)) {
        fgw_span_give(worker, address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Makes sure of quota for so many bytes more in the pool, of which the client gets `bytes`. A pool holds whole steps
 * for what may be allocated from it. */
static bool may_grow(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes, uint64_t grown_bytes)
{
    return pool->blocks.reserved_bytes + grown_bytes <= round_to_steps(pool->max_bytes) &&
           charge(worker, bytes, grown_bytes);
}

/* Likewise of room for what is the driver's to place. */
static bool place(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t grown_bytes)
{
    const bool may = fgw_room_place(&worker->grantee, grown_bytes);
    pool->placed_bytes += may ? grown_bytes : 0;
    return may;
}

static CUresult grow_in_span(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    uint64_t grown_bytes;
    struct fgw_block *hole = fgw_blocks_room(&pool->blocks, bytes, &grown_bytes);
    if (!hole) {
        CUresult result = add_segment(worker, pool, bytes);
        hole = result == CUDA_SUCCESS ? fgw_blocks_room(&pool->blocks, bytes, &grown_bytes) : NULL;
    }
    if (!hole || !may_grow(worker, pool, bytes, grown_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return fill(worker, pool, hole, grown_bytes);
}

/* Without a span it goes with the context that it is made in. */
static CUresult grow_by_a_piece(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    const struct fgw_context *home = worker->calls->span.bytes == 0 ? worker->current : NULL;
    const uint64_t grown_bytes = round_to_steps(bytes);
    uint64_t address;
    if (!may_grow(worker, pool, bytes, grown_bytes) || (home && !place(worker, pool, grown_bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fgw_span_allocate(worker, grown_bytes, &address);
    if (result == CUDA_SUCCESS && !fgw_blocks_add(&pool->blocks, address, grown_bytes, home)) {
        fgw_span_free(worker, address, grown_bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && !home) {
        fgw_blocks_filled(&pool->blocks, pool->blocks.segments->first, grown_bytes); /* all of it: nothing is cut */
    }
    return result;
}

static CUresult grow(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes)
{
    return is_in_pieces(worker, pool) ? grow_by_a_piece(worker, pool, bytes) : grow_in_span(worker, pool, bytes);
}

CUresult fgw_pool_take(struct fgw_worker *worker, struct fgw_memory_pool *pool, uint64_t bytes,
                       const struct fgw_stream *stream, struct fgw_block **block)
{
    if (pool->live_bytes + bytes > pool->max_bytes || !charge(worker, bytes, 0)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = fgw_blocks_take(&pool->blocks, bytes, stream, &fgw_pool_hooks);
    if (!*block) {
        CUresult result = grow(worker, pool, bytes);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        *block = fgw_blocks_take(&pool->blocks, bytes, stream, &fgw_pool_hooks);
    }
    return *block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
