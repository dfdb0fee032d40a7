/* Freed memory for use again: see pool_cache.h. A hash of chains, and all blocks in the order of their freeing. */
#include "context/pool_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "call/call.h"

#define NR_CHAINS  256u
#define MAX_BLOCKS 4096u

struct block {
    struct fgv_pool_place place;
    uint64_t bytes, address;
    struct block *next, *previous; /* in its chain, the newest first */
    struct block *newer, *older;
};

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct block *chains[NR_CHAINS];
static struct block *newest, *oldest;
static uint32_t nr_blocks;
static uint64_t kept_bytes;

static struct block **chain_of(const struct fgv_pool_place *place, uint64_t bytes)
{
    uint64_t mixed = (place->pool ^ place->stream * 3 ^ place->context * 5 ^ bytes) * UINT64_C(0x9e3779b97f4a7c15);
    return &chains[mixed >> 56];
}

static bool is_same(const struct fgv_pool_place *a, const struct fgv_pool_place *b)
{
    return a->pool == b->pool && a->stream == b->stream && a->context == b->context;
}

/* All that follows up to the posting is under the lock. */

static void unlink_block(struct block *block)
{
    struct block **chain = chain_of(&block->place, block->bytes);
    *(block->previous ? &block->previous->next : chain) = block->next;
    if (block->next) {
        block->next->previous = block->previous;
    }
    *(block->newer ? &block->newer->older : &newest) = block->older;
    *(block->older ? &block->older->newer : &oldest) = block->newer;
    nr_blocks--;
    kept_bytes -= block->bytes;
}

static void link_block(struct block *block)
{
    struct block **chain = chain_of(&block->place, block->bytes);
    block->previous = NULL;
    block->next = *chain;
    if (*chain) {
        (*chain)->previous = block;
    }
    *chain = block;
    block->newer = NULL;
    block->older = newest;
    *(newest ? &newest->newer : &oldest) = block;
    newest = block;
    nr_blocks++;
    kept_bytes += block->bytes;
}

static uint64_t kept_of(uint64_t pool)
{
    uint64_t bytes = 0;
    for (const struct block *block = newest; block; block = block->older) {
        bytes += block->place.pool == pool ? block->bytes : 0;
    }
    return bytes;
}

/* Takes blocks out, linked by `next`, oldest first. */
static struct block *take_out(bool (*is_wanted)(const struct block *block, uint64_t what), uint64_t what)
{
    struct block *first = NULL, **last = &first;
    for (struct block *block = oldest, *newer; block; block = newer) {
        newer = block->newer;
        if (!is_wanted(block, what)) {
            continue;
        }
        unlink_block(block);
        block->next = NULL;
        *last = block;
        last = &block->next;
    }
    return first;
}

/* Without the lock: frees them where they were freed, and forgets them. */
static void post_all(struct block *block)
{
    while (block) {
        struct block *next = block->next;
        struct fgv_call call;
        struct fgv_request_cuMemFreeAsync *request =
            fgv_call_begin_for(&call, FGV_CALL_cuMemFreeAsync, sizeof(*request), 0, block->place.context);
        if (request) {
            *request = (struct fgv_request_cuMemFreeAsync){.address = block->address, .stream = block->place.stream};
            fgv_call_post(&call);
        }
        free(block);
        block = next;
    }
}

bool fgv_pool_cache_take(const struct fgv_pool_place *place, uint64_t bytes, uint64_t *address)
{
    pthread_mutex_lock(&books);
    struct block *block = *chain_of(place, bytes);
    while (block && (block->bytes != bytes || !is_same(&block->place, place))) {
        block = block->next;
    }
    if (block) {
        unlink_block(block);
    }
    pthread_mutex_unlock(&books);
    if (!block) {
        return false;
    }
    *address = block->address;
    free(block);
    return true;
}

bool fgv_pool_cache_give(const struct fgv_pool_place *place, uint64_t bytes, uint64_t address, uint64_t threshold_bytes,
                         uint64_t limit_bytes)
{
    struct block *block = bytes <= threshold_bytes && bytes <= limit_bytes ? malloc(sizeof(*block)) : NULL;
    struct block *displaced = NULL;
    if (!block) {
        return false;
    }
    *block = (struct block){.place = *place, .bytes = bytes, .address = address};
    pthread_mutex_lock(&books);
    while (oldest && (nr_blocks == MAX_BLOCKS || kept_bytes > limit_bytes - bytes ||
                      (threshold_bytes < limit_bytes && kept_of(place->pool) > threshold_bytes - bytes))) {
        struct block *last = oldest;
        unlink_block(last);
        last->next = displaced;
        displaced = last;
    }
    link_block(block);
    pthread_mutex_unlock(&books);
    post_all(displaced);
    return true;
}

static bool is_of_pool(const struct block *block, uint64_t pool)
{
    return pool == 0 || block->place.pool == pool;
}

static bool is_of_stream(const struct block *block, uint64_t stream)
{
    return block->place.stream == stream;
}

static bool is_of_context(const struct block *block, uint64_t context)
{
    return block->place.context == context;
}

static struct block *take_out_locked(bool (*is_wanted)(const struct block *block, uint64_t what), uint64_t what)
{
    pthread_mutex_lock(&books);
    struct block *out = take_out(is_wanted, what);
    pthread_mutex_unlock(&books);
    return out;
}

bool fgv_pool_cache_flush(uint64_t pool)
{
    struct block *out = take_out_locked(is_of_pool, pool);
    post_all(out);
    return out != NULL;
}

void fgv_pool_cache_flush_stream(uint64_t stream)
{
    post_all(take_out_locked(is_of_stream, stream));
}

void fgv_pool_cache_forget_context(uint64_t context)
{
    struct block *block = take_out_locked(is_of_context, context);
    while (block) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
}
