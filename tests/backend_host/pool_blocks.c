/* Blocks of one pool, with streams that are numbers: what test_pool_blocks.py calls, and what must hold after each
 * call. */
#include "calls/pool_blocks.h"

#include <stddef.h>

#include "client/state.h"

#define NR_STREAMS 4u

static struct fgw_blocks blocks;
static struct fgw_stream streams[NR_STREAMS];

static bool is_done(const struct fgw_stream *stream, uint64_t seq)
{
    return stream->done_seq >= seq;
}

static void left(struct fgw_stream *stream)
{
    stream->nr_waiters--;
}

static const struct fgw_block_hooks hooks = {.is_done = is_done, .left = left};

void begin(void)
{
    fgw_blocks_drop(&blocks, &hooks);
    for (uint32_t i = 0; i < NR_STREAMS; i++) {
        streams[i] = (struct fgw_stream){0};
    }
}

bool add(uint64_t address, uint64_t bytes)
{
    return fgw_blocks_add(&blocks, address, bytes, NULL);
}

/* Work comes to a stream, and ends up to there. */
void work(uint32_t stream)
{
    streams[stream].last_seq++;
}

void finish(uint32_t stream, uint64_t seq)
{
    streams[stream].done_seq = seq;
}

/* 0: there is none. */
uint64_t take(uint64_t bytes, uint32_t stream, struct fgw_block **block)
{
    *block = fgw_blocks_take(&blocks, bytes, &streams[stream], &hooks);
    return *block ? (*block)->address : 0;
}

void give(struct fgw_block *block, uint32_t stream)
{
    struct fgw_stream *in = &streams[stream];
    const bool is_waiting = in->done_seq < in->last_seq;
    in->nr_waiters += is_waiting;
    fgw_blocks_free(&blocks, block, is_waiting ? in : NULL, in->last_seq);
}

void give_at_once(struct fgw_block *block)
{
    fgw_blocks_free(&blocks, block, NULL, 0);
}

/* Fills a hole, and says how much of it; 0: there is none. */
uint64_t grow(uint64_t bytes)
{
    uint64_t grown_bytes = 0;
    struct fgw_block *hole = fgw_blocks_room(&blocks, bytes, &grown_bytes);
    return hole && fgw_blocks_filled(&blocks, hole, grown_bytes) ? grown_bytes : 0;
}

/* Empties steps of the first free block that has a whole one; how many bytes. */
uint64_t shrink(uint64_t most_bytes)
{
    fgw_blocks_settle(&blocks, &hooks);
    for (struct fgw_segment *segment = blocks.segments; segment; segment = segment->next) {
        for (struct fgw_block *block = segment->first; block; block = block->behind) {
            const uint64_t begin = (block->address + FGW_POOL_STEP - 1) / FGW_POOL_STEP * FGW_POOL_STEP;
            const uint64_t end = (block->address + block->bytes) / FGW_POOL_STEP * FGW_POOL_STEP;
            if (block->state != FGW_BLOCK_FREE || end <= begin) {
                continue;
            }
            const uint64_t bytes = end - begin < most_bytes ? end - begin : most_bytes;
            return fgw_blocks_emptied(&blocks, block, begin, bytes) ? bytes : 0;
        }
    }
    return 0;
}

uint64_t reserved(void)
{
    return blocks.reserved_bytes;
}

static uint32_t length(const struct fgw_block_list *list)
{
    uint32_t nr = 0;
    const struct fgw_block *newer = NULL;
    for (const struct fgw_block *block = list->newest; block; newer = block, block = block->older) {
        if (block->newer != newer) {
            return UINT32_MAX;
        }
        nr++;
    }
    return list->oldest == newer ? nr : UINT32_MAX;
}

static const char *check_segment(const struct fgw_segment *segment, uint32_t nr[4], uint64_t *reserved_bytes,
                                 uint32_t waiters[NR_STREAMS])
{
    uint64_t end = segment->address;
    const struct fgw_block *before = NULL;
    for (const struct fgw_block *block = segment->first; block; before = block, block = block->behind) {
        if (block->address != end || block->bytes == 0 || block->before != before || block->segment != segment) {
            return "blocks do not lie side by side";
        }
        if (before && before->state == block->state &&
            (block->state == FGW_BLOCK_FREE || block->state == FGW_BLOCK_HOLE)) {
            return "two of a kind were not joined";
        }
        if ((block->state == FGW_BLOCK_WAITING) != (block->stream != NULL)) {
            return "a block waits for a stream, or no other";
        }
        if (block->stream) {
            waiters[block->stream - streams]++;
        }
        nr[block->state]++;
        *reserved_bytes += block->state == FGW_BLOCK_HOLE ? 0 : block->bytes;
        end += block->bytes;
    }
    return end == segment->address + segment->bytes ? NULL : "a segment is not full";
}

/* NULL: all is as it should be. */
const char *check(void)
{
    uint32_t nr[4] = {0}, waiters[NR_STREAMS] = {0}, nr_free = 0;
    uint64_t reserved_bytes = 0;
    for (const struct fgw_segment *segment = blocks.segments; segment; segment = segment->next) {
        const char *wrong = check_segment(segment, nr, &reserved_bytes, waiters);
        if (wrong) {
            return wrong;
        }
    }
    for (uint32_t bin = 0; bin < FGW_BLOCKS_NR_BINS; bin++) {
        const uint32_t nr_here = length(&blocks.bins[bin]);
        if ((nr_here != 0) != (blocks.has[bin / 64] >> bin % 64 & 1)) {
            return "a bin's bit is wrong";
        }
        nr_free += nr_here;
    }
    for (uint32_t i = 0; i < NR_STREAMS; i++) {
        if (streams[i].nr_waiters != waiters[i]) {
            return "a stream is held by too many, or too few";
        }
    }
    if (nr_free != nr[FGW_BLOCK_FREE] || length(&blocks.waiting) != nr[FGW_BLOCK_WAITING] ||
        length(&blocks.holes) != nr[FGW_BLOCK_HOLE] || blocks.nr_waiting != nr[FGW_BLOCK_WAITING]) {
        return "a list lacks a block, or has one that is none of it";
    }
    return reserved_bytes == blocks.reserved_bytes ? NULL : "reserved bytes are wrong";
}
