/*
 * Memory of one pool, cut into blocks: which are used, and who may have the others. Plain data that calls nobody.
 *
 * A segment is a range of addresses. Its blocks lie side by side: used, free, or holes, which have no memory. What is
 * freed waits until the work is over that was in its stream then; until then the same stream may have it again, and
 * nobody else. Free blocks that wait for nothing are joined with their like, and hang in bins by size, four to each
 * power of two. (Masmano and others, TLSF: a new dynamic memory allocator for real-time systems, 2004.)
 */
#ifndef BACKEND_HOST_WORKER_POOL_BLOCKS_H
#define BACKEND_HOST_WORKER_POOL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define FGW_BLOCK_BYTES    UINT64_C(512)        /* as the driver cuts pools */
#define FGW_POOL_STEP      (UINT64_C(32) << 20) /* by which a pool grows, as the driver's */
#define FGW_BLOCKS_NR_BINS 128u

struct fgw_context;
struct fgw_stream;

enum fgw_block_state {
    FGW_BLOCK_HOLE = 0,
    FGW_BLOCK_FREE,
    FGW_BLOCK_WAITING, /* freed, and its stream's work is not over */
    FGW_BLOCK_USED,
};

struct fgw_block {
    uint64_t address, bytes;
    enum fgw_block_state state;
    struct fgw_stream *stream; /* of a waiting one */
    uint64_t seq;              /* ... which must be done up to here */
    struct fgw_segment *segment;
    struct fgw_block *before, *behind; /* by address */
    struct fgw_block *newer, *older;   /* of its state: in its bin, those that wait, holes */
};

struct fgw_segment {
    struct fgw_segment *next;
    uint64_t address, bytes;
    const struct fgw_context *home; /* the context that its memory goes with, NULL: none */
    struct fgw_block *first;
};

/* A list of blocks of one state. */
struct fgw_block_list {
    struct fgw_block *newest, *oldest;
};

struct fgw_blocks {
    struct fgw_segment *segments;
    struct fgw_block_list bins[FGW_BLOCKS_NR_BINS], waiting, holes;
    uint64_t has[FGW_BLOCKS_NR_BINS / 64]; /* a bit for each bin that has blocks */
    uint64_t reserved_bytes;               /* all that is no hole */
    uint32_t nr_waiting;
};

/* Tells whether the stream has done its work up to there. */
typedef bool (*fgw_block_is_done_fn)(const struct fgw_stream *stream, uint64_t seq);
/* A block no longer waits for this stream. */
typedef void (*fgw_block_left_fn)(struct fgw_stream *stream);

struct fgw_block_hooks {
    fgw_block_is_done_fn is_done;
    fgw_block_left_fn left;
};

/* A new segment: a hole, or with a home memory that is free. False without memory for it. */
bool fgw_blocks_add(struct fgw_blocks *blocks, uint64_t address, uint64_t bytes, const struct fgw_context *home);
/* A segment that is nothing but a hole, or one free block, is none any more. */
void fgw_blocks_remove(struct fgw_blocks *blocks, struct fgw_segment *segment);
/* Its memory has gone; nothing of it is used. */
void fgw_blocks_lose(struct fgw_blocks *blocks, struct fgw_segment *segment, const struct fgw_block_hooks *hooks);

/* A block of so many bytes for this stream, NULL: there is none. Used from now on; fgw_blocks_free takes it back. */
struct fgw_block *fgw_blocks_take(struct fgw_blocks *blocks, uint64_t bytes, const struct fgw_stream *stream,
                                  const struct fgw_block_hooks *hooks);
/* `stream` NULL: nobody uses it any more. */
void fgw_blocks_free(struct fgw_blocks *blocks, struct fgw_block *block, struct fgw_stream *stream, uint64_t seq);
/* Lets those go that need not wait any more. */
void fgw_blocks_settle(struct fgw_blocks *blocks, const struct fgw_block_hooks *hooks);

/* Where a pool would grow for so many bytes: a hole, and how much of it is to be filled, in steps of the pool's. NULL:
 * nowhere. */
struct fgw_block *fgw_blocks_room(const struct fgw_blocks *blocks, uint64_t bytes, uint64_t *grown_bytes);
/* The first bytes of a hole have memory now; false without memory for what is left of it. */
bool fgw_blocks_filled(struct fgw_blocks *blocks, struct fgw_block *hole, uint64_t bytes);
/* Some bytes of a free block have none any more: the hole that they are in. NULL, and nothing done, without memory for
 * the pieces. */
struct fgw_block *fgw_blocks_emptied(struct fgw_blocks *blocks, struct fgw_block *block, uint64_t address,
                                     uint64_t bytes);

/* Frees all that is kept here. */
void fgw_blocks_drop(struct fgw_blocks *blocks, const struct fgw_block_hooks *hooks);

#endif
