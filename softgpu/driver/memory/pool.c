/*
 * Stream-ordered allocation. Memory is had at once, earlier than its place in the stream: that does no harm. It is free
 * when its free has run in the stream; then the pool keeps it up to its release threshold, and hands it out again.
 *
 * Wrong when: a pool keeps tens of thousands of free pieces that are too small. Finding one that fits looks at them
 * all.
 */
#include "memory/pool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/capture.h"
#include "stream/queue.h"
#include "stream/stream.h"

/* Kept memory serves requests down to this part of its size. */
#define FIT_DIVISOR 2u

static struct CUmemPoolHandle_st *pools;

static void kept_add(struct sgp_allocation *allocation)
{
    struct CUmemPoolHandle_st *pool = allocation->pool;

    allocation->is_kept = true;
    allocation->next_kept = pool->kept;
    allocation->kept_link = &pool->kept;
    if (pool->kept) {
        pool->kept->kept_link = &allocation->next_kept;
    }
    pool->kept = allocation;
}

static void kept_remove(struct sgp_allocation *allocation)
{
    allocation->is_kept = false;
    *allocation->kept_link = allocation->next_kept;
    if (allocation->next_kept) {
        allocation->next_kept->kept_link = allocation->kept_link;
    }
}

void sgp_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep_bytes)
{
    sgp_object_keep(pool); /* a destroyed one goes with its last memory */
    while (pool->reserved_bytes > keep_bytes && pool->kept) {
        sgp_memory_delete(pool->kept);
    }
    sgp_object_release(pool);
}

/* All pools of the device. One that is destroyed keeps nothing, so that none goes here. */
static bool trim_all(struct sgp_device *device)
{
    bool is_trimmed = false;

    for (struct CUmemPoolHandle_st *pool = pools; pool; pool = pool->next) {
        if (pool->device == device && pool->kept) {
            sgp_pool_trim(pool, 0);
            is_trimmed = true;
        }
    }
    return is_trimmed;
}

void sgp_pool_open(struct sgp_device *device)
{
    static struct CUmemPoolHandle_st default_pools[SGP_MAX_DEVICES];
    struct CUmemPoolHandle_st *pool = &default_pools[device->ordinal];

    *pool = (struct CUmemPoolHandle_st){.device = device, .reuse = {1, 1, 1}, .next = pools};
    sgp_object_add(pool, SGP_MEMORY_POOL, NULL);
    pools = device->default_pool = device->pool = pool;
    sgp_memory_trim = trim_all;
}

/* The place in a shared file is not used again: others may still look at it. */
static void file_give_back(const struct sgp_allocation *allocation)
{
    if (fallocate(allocation->share->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(SGP_SHARED_HEAD_BYTES + allocation->share_offset), (off_t)allocation->mapped_bytes)) {
        sgp_log("device", "the host does not take %zu bytes back", (size_t)allocation->mapped_bytes);
    }
}

static void deleted(struct sgp_allocation *allocation)
{
    struct CUmemPoolHandle_st *pool = allocation->pool;

    if (allocation->share && !allocation->is_imported) {
        file_give_back(allocation);
    }
    pool->reserved_bytes -= allocation->mapped_bytes;
    if (allocation->is_kept) {
        kept_remove(allocation);
    } else if (!allocation->freed_in) {
        pool->used_bytes -= allocation->bytes;
    }
    if (pool != pool->device->default_pool) {
        sgp_object_release(pool);
    }
}

/* Nothing uses it any more. */
static void give_back(struct sgp_allocation *allocation)
{
    struct CUmemPoolHandle_st *pool = allocation->pool;

    allocation->freed_in = NULL;
    kept_add(allocation);
    sgp_pool_trim(pool, pool->is_destroyed ? 0 : pool->release_threshold_bytes);
}

static void free_pooled(struct sgp_allocation *allocation)
{
    allocation->pool->used_bytes -= allocation->bytes;
    give_back(allocation);
}

static const struct sgp_memory_owner owner = {.free = free_pooled, .deleted = deleted};

/* Free memory of the pool that fits; NULL: none. */
static struct sgp_allocation *kept_find(const struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    struct sgp_allocation *kept = pool->kept;

    while (kept && (kept->mapped_bytes < bytes || kept->mapped_bytes / FIT_DIVISOR > bytes)) {
        kept = kept->next_kept;
    }
    return kept;
}

/* Memory as the pool's: of the device, or of its file. */
static CUresult memory_new(struct CUctx_st *context, struct CUmemPoolHandle_st *pool, uint64_t bytes, void **address)
{
    struct sgp_share *share = pool->share;
    const uint64_t mapped_bytes = (bytes + SGP_PAGE_BYTES - 1) / SGP_PAGE_BYTES * SGP_PAGE_BYTES;
    CUresult result;

    if (!share) {
        return sgp_memory_new(context, bytes, SGP_MEMORY_POOLED, address);
    }
    if (bytes > context->device->memory_bytes ||
        ftruncate(share->file, (off_t)(SGP_SHARED_HEAD_BYTES + pool->share_bytes + mapped_bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_memory_new_in(context, bytes, SGP_MEMORY_POOLED, share, pool->share_bytes, false, address);
    if (!result) {
        pool->share_bytes += mapped_bytes;
        if (share->is_exported) {
            sgp_state_move(pool->device->state, &share->head.holder, (int64_t)mapped_bytes);
        }
    }
    return result;
}

static struct sgp_allocation *adopt(struct CUmemPoolHandle_st *pool, const void *address)
{
    struct sgp_allocation *allocation = sgp_memory_find((uintptr_t)address);

    allocation->owner = &owner;
    allocation->pool = pool;
    if (pool != pool->device->default_pool) {
        sgp_object_keep(pool);
    }
    pool->reserved_bytes += allocation->mapped_bytes;
    return allocation;
}

/* New memory. When there is none, kept memory goes first, and then all work is waited for: it may end in frees. */
static CUresult grow(struct CUctx_st *context, struct CUmemPoolHandle_st *pool, uint64_t bytes,
                     struct sgp_allocation **allocation)
{
    void *address;
    CUresult result;

    if (pool->max_bytes && (bytes > pool->max_bytes || pool->reserved_bytes > pool->max_bytes - bytes)) {
        sgp_pool_trim(pool, 0);
    }
    if (pool->max_bytes && (bytes > pool->max_bytes || pool->reserved_bytes > pool->max_bytes - bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = memory_new(context, pool, bytes, &address);
    if (result && bytes <= context->device->memory_bytes) {
        sgp_object_keep(context);
        sgp_queue_drain(context);
        sgp_object_release(context);
        result = memory_new(context, pool, bytes, &address);
    }
    if (!result) {
        *allocation = adopt(pool, address);
    }
    return result;
}

static void count_use(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    pool->used_bytes += bytes;
    if (pool->used_bytes > pool->used_high_bytes) {
        pool->used_high_bytes = pool->used_bytes;
    }
    if (pool->reserved_bytes > pool->reserved_high_bytes) {
        pool->reserved_high_bytes = pool->reserved_bytes;
    }
}

static CUresult allocate(struct CUctx_st *context, struct CUmemPoolHandle_st *pool, uint64_t bytes,
                         CUdeviceptr *address)
{
    struct sgp_allocation *allocation = kept_find(pool, bytes);
    CUresult result = CUDA_SUCCESS;

    if (allocation) {
        kept_remove(allocation);
        allocation->bytes = bytes;
        allocation->context = context;
        allocation->id = sgp_new_id();
    } else {
        result = grow(context, pool, bytes, &allocation);
    }
    if (result) {
        return result;
    }
    count_use(pool, bytes);
    *address = allocation->start;
    return CUDA_SUCCESS;
}

CUresult sgp_pool_import(struct CUctx_st *context, struct CUmemPoolHandle_st *pool, uint64_t offset, uint64_t bytes,
                         CUdeviceptr *address)
{
    void *at;
    CUresult result = sgp_memory_new_in(context, bytes, SGP_MEMORY_POOLED, pool->share, offset, true, &at);

    if (result) {
        return result;
    }
    *address = adopt(pool, at)->start;
    count_use(pool, bytes);
    return CUDA_SUCCESS;
}

static CUresult allocate_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, bool is_named, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(handle, &stream);

    if (result) {
        return result;
    }
    if (!dptr || (is_named && (!sgp_object_is(pool, SGP_MEMORY_POOL) || pool->nr_imports))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!bytes) {
        *dptr = 0;
        return sgp_leave(CUDA_SUCCESS);
    }
    if (stream->capture) {
        return sgp_leave(stream->capture->sink->allocate(stream, bytes, dptr));
    }
    return sgp_leave(
        allocate(stream->object.context, is_named ? pool : stream->object.context->device->pool, bytes, dptr));
}

SGP_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return allocate_async(dptr, bytesize, NULL, false, hStream);
}

SGP_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    return allocate_async(dptr, bytesize, pool, true, hStream);
}

struct free_command {
    struct sgp_command command;
    CUdeviceptr address;
    uint64_t id;
};

static void free_finish(struct sgp_command *command)
{
    const struct free_command *released = (struct free_command *)command;
    struct sgp_allocation *allocation = sgp_memory_find(released->address);

    if (allocation && allocation->id == released->id) {
        if (allocation->kind == SGP_MEMORY_POOLED) {
            give_back(allocation);
        } else {
            sgp_memory_delete(allocation);
        }
    }
    free(command);
}

SGP_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct CUstream_st *stream;
    struct sgp_allocation *allocation;
    struct free_command *command;
    CUresult result = sgp_enter_stream(hStream, &stream);

    if (result) {
        return result;
    }
    if (stream->capture) {
        return sgp_leave(stream->capture->sink->free(stream, dptr));
    }
    if (!dptr) {
        return sgp_leave(CUDA_SUCCESS);
    }
    allocation = sgp_memory_find(dptr);
    if (allocation && allocation->start == dptr && allocation->owner && allocation->owner->free_in) {
        return sgp_leave(allocation->owner->free_in(allocation, stream));
    }
    if (!allocation || allocation->start != dptr || allocation->freed_in || allocation->is_kept ||
        (allocation->kind != SGP_MEMORY_POOLED && allocation->kind != SGP_MEMORY_DEVICE)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    command = calloc(1, sizeof(*command));
    if (!command) {
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *command =
        (struct free_command){.command = {.run = sgp_command_in_order, .finish = free_finish, .runs_after_error = true},
                              .address = dptr,
                              .id = allocation->id};
    allocation->freed_in = stream;
    if (allocation->kind == SGP_MEMORY_POOLED) {
        allocation->pool->used_bytes -= allocation->bytes;
    }
    return sgp_leave(sgp_queue_submit(stream, &command->command, NULL));
}

static void pool_destroy(void *object)
{
    struct CUmemPoolHandle_st *pool = object, **link = &pools;

    while (*link != pool) {
        link = &(*link)->next;
    }
    *link = pool->next;
    if (pool->share) {
        sgp_share_end(pool->share);
        free(pool->share);
    }
    free(pool);
}

struct CUmemPoolHandle_st *sgp_pool_new(struct sgp_device *device, struct sgp_share *share)
{
    struct CUmemPoolHandle_st *made = calloc(1, sizeof(*made));

    if (!made || !sgp_object_add(made, SGP_MEMORY_POOL, pool_destroy)) {
        free(made);
        return NULL;
    }
    made->next = pools;
    pools = made;
    made->device = device;
    made->share = share;
    for (int i = 0; i < 3; i++) {
        made->reuse[i] = 1;
    }
    return made;
}

struct CUmemPoolHandle_st *sgp_pool_imported(uint64_t inode)
{
    struct CUmemPoolHandle_st *pool = pools;

    while (pool && (!pool->nr_imports || pool->inode != inode)) {
        pool = pool->next;
    }
    return pool;
}
