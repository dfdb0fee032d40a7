#include "calls/pool_blocks.h"

#include <stdlib.h>

#define PER_POWER   4u
#define MOST_LOOKS  64u /* at blocks that wait, or that may be large enough, for one allocation */
#define MOST_SETTLE 32u /* for one allocation that need not */

/* ---- lists ---- */

static void append(struct fgw_block_list *list, struct fgw_block *block)
{
    block->newer = NULL;
    block->older = list->newest;
    *(block->older ? &block->older->newer : &list->oldest) = block;
    list->newest = block;
}

static void take_out(struct fgw_block_list *list, struct fgw_block *block)
{
    *(block->newer ? &block->newer->older : &list->newest) = block->older;
    *(block->older ? &block->older->newer : &list->oldest) = block->newer;
    block->newer = block->older = NULL;
}

/* Finds the bin in which a free block hangs. */
static uint32_t bin_of(uint64_t bytes)
{
    const uint64_t units = bytes / FGW_BLOCK_BYTES;
    const uint32_t power = 63u - (uint32_t)__builtin_clzll(units);
    const uint32_t part = power >= 2 ? (uint32_t)(units >> (power - 2)) & (PER_POWER - 1) : 0;
    const uint32_t bin = power * PER_POWER + part;
    return bin < FGW_BLOCKS_NR_BINS ? bin : FGW_BLOCKS_NR_BINS - 1;
}

static struct fgw_block_list *list_of(struct fgw_blocks *blocks, const struct fgw_block *block)
{
    switch (block->state) {
    case FGW_BLOCK_HOLE:
        return &blocks->holes;
    case FGW_BLOCK_WAITING:
        return &blocks->waiting;
    case FGW_BLOCK_FREE:
        return &blocks->bins[bin_of(block->bytes)];
    case FGW_BLOCK_USED:
        break;
    }
    return NULL;
}

static void hang(struct fgw_blocks *blocks, struct fgw_block *block, enum fgw_block_state state)
{
    block->state = state;
    struct fgw_block_list *list = list_of(blocks, block);
    if (list) {
        append(list, block);
    }
    if (state == FGW_BLOCK_FREE) {
        const uint32_t bin = bin_of(block->bytes);
        blocks->has[bin / 64] |= UINT64_C(1) << bin % 64;
    }
    blocks->nr_waiting += state == FGW_BLOCK_WAITING;
}

static void unhang(struct fgw_blocks *blocks, struct fgw_block *block)
{
    struct fgw_block_list *list = list_of(blocks, block);
    if (list) {
        take_out(list, block);
    }
    if (block->state == FGW_BLOCK_FREE && !list->newest) {
        const uint32_t bin = bin_of(block->bytes);
        blocks->has[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    }
    blocks->nr_waiting -= block->state == FGW_BLOCK_WAITING;
}

/* ---- neighbours ---- */

/* Cuts off what is behind the first `bytes`: a block like it, which hangs nowhere. NULL: there is nothing, or no
 * memory, which `is_failed` tells. */
static struct fgw_block *cut(struct fgw_block *block, uint64_t bytes, bool *is_failed)
{
    *is_failed = false;
    if (block->bytes == bytes) {
        return NULL;
    }
    struct fgw_block *rest = malloc(sizeof(*rest));
    if (!rest) {
        *is_failed = true;
        return NULL;
    }
    *rest = *block;
    rest->address += bytes;
    rest->bytes -= bytes;
    rest->before = block;
    if (rest->behind) {
        rest->behind->before = rest;
    }
    block->behind = rest;
    block->bytes = bytes;
    return rest;
}

/* Makes the one behind part of it; neither hangs anywhere. */
static void join(struct fgw_block *block)
{
    struct fgw_block *gone = block->behind;
    block->bytes += gone->bytes;
    block->behind = gone->behind;
    if (block->behind) {
        block->behind->before = block;
    }
    free(gone);
}

/* Hangs a block that hangs nowhere, joined with those beside it of the same state: the block that all are. */
static struct fgw_block *hang_joined(struct fgw_blocks *blocks, struct fgw_block *block, enum fgw_block_state state)
{
    if (block->behind && block->behind->state == state) {
        unhang(blocks, block->behind);
        join(block);
    }
    if (block->before && block->before->state == state) {
        block = block->before;
        unhang(blocks, block);
        join(block);
    }
    block->stream = NULL;
    hang(blocks, block, state);
    return block;
}

/* ---- segments ---- */

bool fgw_blocks_add(struct fgw_blocks *blocks, uint64_t address, uint64_t bytes, const struct fgw_context *home)
{
    struct fgw_segment *segment = malloc(sizeof(*segment));
    struct fgw_block *block = malloc(sizeof(*block));
    if (!segment || !block) {
        free(segment);
        free(block);
        return false;
    }
    *block = (struct fgw_block){.address = address, .bytes = bytes, .segment = segment};
    *segment = (struct fgw_segment){
        .next = blocks->segments, .address = address, .bytes = bytes, .home = home, .first = block};
    blocks->segments = segment;
    blocks->reserved_bytes += home ? bytes : 0;
    hang(blocks, block, home ? FGW_BLOCK_FREE : FGW_BLOCK_HOLE);
    return true;
}

void fgw_blocks_remove(struct fgw_blocks *blocks, struct fgw_segment *segment)
{
    struct fgw_segment **link = &blocks->segments;
    while (*link != segment) {
        link = &(*link)->next;
    }
    *link = segment->next;
    unhang(blocks, segment->first);
    blocks->reserved_bytes -= segment->first->state == FGW_BLOCK_HOLE ? 0 : segment->bytes;
    free(segment->first);
    free(segment);
}

/* ---- taking and freeing ---- */

static void settle(struct fgw_blocks *blocks, struct fgw_block *block, const struct fgw_block_hooks *hooks)
{
    struct fgw_stream *stream = block->stream;
    unhang(blocks, block);
    hang_joined(blocks, block, FGW_BLOCK_FREE);
    hooks->left(stream);
}

static void settle_some(struct fgw_blocks *blocks, const struct fgw_block_hooks *hooks, uint32_t most)
{
    struct fgw_block *block = blocks->waiting.oldest;
    while (block && most-- != 0) {
        struct fgw_block *newer = block->newer;
        if (hooks->is_done(block->stream, block->seq)) {
            settle(blocks, block, hooks);
        }
        block = newer;
    }
}

void fgw_blocks_settle(struct fgw_blocks *blocks, const struct fgw_block_hooks *hooks)
{
    settle_some(blocks, hooks, UINT32_MAX);
}

void fgw_blocks_lose(struct fgw_blocks *blocks, struct fgw_segment *segment, const struct fgw_block_hooks *hooks)
{
    for (struct fgw_block *block = segment->first; block;) {
        const bool is_waiting = block->state == FGW_BLOCK_WAITING;
        if (is_waiting) {
            settle(blocks, block, hooks);
        }
        block = is_waiting ? segment->first : block->behind;
    }
    fgw_blocks_remove(blocks, segment);
}

/* Finds the smallest of the newest that are large enough; `stream` NULL: of any. */
static struct fgw_block *best_of(const struct fgw_block_list *list, uint64_t bytes, const struct fgw_stream *stream)
{
    struct fgw_block *best = NULL, *block = list->newest;
    for (uint32_t i = 0; block && i < MOST_LOOKS; i++, block = block->older) {
        if (block->bytes >= bytes && (!stream || block->stream == stream) && (!best || block->bytes < best->bytes)) {
            best = block;
        }
    }
    return best;
}

static struct fgw_block *find_free(const struct fgw_blocks *blocks, uint64_t bytes)
{
    const uint32_t bin = bin_of(bytes);
    struct fgw_block *found = best_of(&blocks->bins[bin], bytes, NULL);
    for (uint32_t next = bin + 1; !found && next < FGW_BLOCKS_NR_BINS;) {
        const uint64_t has = blocks->has[next / 64] >> next % 64;
        if (has == 0) {
            next = (next / 64 + 1) * 64;
            continue;
        }
        next += (uint32_t)__builtin_ctzll(has);
        found = best_of(&blocks->bins[next], bytes, NULL);
        next++;
    }
    return found;
}

struct fgw_block *fgw_blocks_take(struct fgw_blocks *blocks, uint64_t bytes, const struct fgw_stream *stream,
                                  const struct fgw_block_hooks *hooks)
{
    bool is_failed;
    bytes = (bytes + FGW_BLOCK_BYTES - 1) / FGW_BLOCK_BYTES * FGW_BLOCK_BYTES;
    settle_some(blocks, hooks, MOST_SETTLE);
    struct fgw_block *block = best_of(&blocks->waiting, bytes, stream);
    block = block ? block : find_free(blocks, bytes);
    if (!block) {
        fgw_blocks_settle(blocks, hooks);
        block = find_free(blocks, bytes);
    }
    if (!block) {
        return NULL;
    }
    const enum fgw_block_state state = block->state;
    struct fgw_stream *left = block->stream;
    unhang(blocks, block);
    struct fgw_block *rest = cut(block, bytes, &is_failed);
    if (is_failed) {
        hang(blocks, block, state);
        return NULL;
    }
    if (rest) {
        hang(blocks, rest, state); /* of the same stream, if any */
    }
    block->stream = NULL;
    block->state = FGW_BLOCK_USED;
    if (left && !rest) {
        hooks->left(left);
    }
    return block;
}

void fgw_blocks_free(struct fgw_blocks *blocks, struct fgw_block *block, struct fgw_stream *stream, uint64_t seq)
{
    if (!stream) {
        hang_joined(blocks, block, FGW_BLOCK_FREE);
        return;
    }
    block->stream = stream;
    block->seq = seq;
    hang(blocks, block, FGW_BLOCK_WAITING);
}

/* ---- growing and shrinking ---- */

/* Free memory right before a hole is the beginning of what a larger allocation gets. */
struct fgw_block *fgw_blocks_room(const struct fgw_blocks *blocks, uint64_t bytes, uint64_t *grown_bytes)
{
    for (struct fgw_block *hole = blocks->holes.oldest; hole; hole = hole->newer) {
        const struct fgw_block *before = hole->before;
        const uint64_t had_bytes = before && before->state == FGW_BLOCK_FREE ? before->bytes : 0;
        const uint64_t missing_bytes = bytes > had_bytes ? bytes - had_bytes : 1;
        if (missing_bytes > hole->bytes) {
            continue;
        }
        const uint64_t steps = (missing_bytes + FGW_POOL_STEP - 1) / FGW_POOL_STEP;
        *grown_bytes = steps * FGW_POOL_STEP < hole->bytes ? steps * FGW_POOL_STEP : hole->bytes;
        return hole;
    }
    return NULL;
}

bool fgw_blocks_filled(struct fgw_blocks *blocks, struct fgw_block *hole, uint64_t bytes)
{
    bool is_failed;
    unhang(blocks, hole);
    struct fgw_block *rest = cut(hole, bytes, &is_failed);
    if (is_failed) {
        hang(blocks, hole, FGW_BLOCK_HOLE);
        return false;
    }
    if (rest) {
        hang(blocks, rest, FGW_BLOCK_HOLE);
    }
    blocks->reserved_bytes += bytes;
    hang_joined(blocks, hole, FGW_BLOCK_FREE);
    return true;
}

struct fgw_block *fgw_blocks_emptied(struct fgw_blocks *blocks, struct fgw_block *block, uint64_t address,
                                     uint64_t bytes)
{
    bool is_failed;
    struct fgw_block *emptied = block;
    unhang(blocks, block);
    if (address != block->address) {
        emptied = cut(block, address - block->address, &is_failed);
        if (is_failed) {
            hang(blocks, block, FGW_BLOCK_FREE);
            return NULL;
        }
    }
    struct fgw_block *rest = cut(emptied, bytes, &is_failed);
    if (is_failed) {
        if (emptied != block) {
            join(block);
        }
        hang(blocks, block, FGW_BLOCK_FREE);
        return NULL;
    }
    if (emptied != block) {
        hang(blocks, block, FGW_BLOCK_FREE);
    }
    if (rest) {
        hang(blocks, rest, FGW_BLOCK_FREE);
    }
    blocks->reserved_bytes -= bytes;
    return hang_joined(blocks, emptied, FGW_BLOCK_HOLE);
}

void fgw_blocks_drop(struct fgw_blocks *blocks, const struct fgw_block_hooks *hooks)
{
    while (blocks->segments) {
        struct fgw_segment *segment = blocks->segments;
        blocks->segments = segment->next;
        for (struct fgw_block *block = segment->first; block;) {
            struct fgw_block *behind = block->behind;
            if (block->state == FGW_BLOCK_WAITING) {
                hooks->left(block->stream);
            }
            free(block);
            block = behind;
        }
        free(segment);
    }
    *blocks = (struct fgw_blocks){0};
}
