/*
 * Stream-ordered allocation. Memory is had at once, earlier than its place in the stream: that does no harm. It is free
 * when its free has run in the stream; then the pool keeps it up to its release threshold, and hands it out again.
 *
 * Wrong when: a pool keeps tens of thousands of free pieces that are too small. Finding one that fits looks at them
 * all.
 */
#include "memory/pool.h"

#include <stdlib.h>

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

static void trim(struct CUmemPoolHandle_st *pool, uint64_t keep_bytes)
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
            trim(pool, 0);
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

static void deleted(struct sgp_allocation *allocation)
{
    struct CUmemPoolHandle_st *pool = allocation->pool;

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
    trim(pool, pool->is_destroyed ? 0 : pool->release_threshold_bytes);
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

/* New memory. When there is none, kept memory goes first, and then all work is waited for: it may end in frees. */
static CUresult grow(struct CUctx_st *context, struct CUmemPoolHandle_st *pool, uint64_t bytes,
                     struct sgp_allocation **allocation)
{
    void *address;
    CUresult result;

    if (pool->max_bytes && (bytes > pool->max_bytes || pool->reserved_bytes > pool->max_bytes - bytes)) {
        trim(pool, 0);
    }
    if (pool->max_bytes && (bytes > pool->max_bytes || pool->reserved_bytes > pool->max_bytes - bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_memory_new(context, bytes, SGP_MEMORY_POOLED, &address);
    if (result && bytes <= context->device->memory_bytes) {
        sgp_object_keep(context);
        sgp_queue_drain(context);
        sgp_object_release(context);
        result = sgp_memory_new(context, bytes, SGP_MEMORY_POOLED, &address);
    }
    if (result) {
        return result;
    }
    *allocation = sgp_memory_find((uintptr_t)address);
    (*allocation)->owner = &owner;
    (*allocation)->pool = pool;
    if (pool != pool->device->default_pool) {
        sgp_object_keep(pool);
    }
    pool->reserved_bytes += (*allocation)->mapped_bytes;
    return CUDA_SUCCESS;
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
    pool->used_bytes += bytes;
    if (pool->used_bytes > pool->used_high_bytes) {
        pool->used_high_bytes = pool->used_bytes;
    }
    if (pool->reserved_bytes > pool->reserved_high_bytes) {
        pool->reserved_high_bytes = pool->reserved_bytes;
    }
    *address = allocation->start;
    return CUDA_SUCCESS;
}

static CUresult allocate_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, bool is_named, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = sgp_enter_stream(handle, &stream);

    if (result) {
        return result;
    }
    if (!dptr || (is_named && !sgp_object_is(pool, SGP_MEMORY_POOL))) {
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

static bool is_own_device(const CUmemLocation *location, struct sgp_device **device)
{
    *device = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? sgp_device_find(location->id) : NULL;
    return *device != NULL;
}

static void pool_destroy(void *object)
{
    struct CUmemPoolHandle_st **link = &pools;

    while (*link != object) {
        link = &(*link)->next;
    }
    *link = (*link)->next;
    free(object);
}

SGP_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    struct sgp_device *device;
    struct CUmemPoolHandle_st *made;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (!is_own_device(&poolProps->location, &device)) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    made = calloc(1, sizeof(*made));
    if (!made || !sgp_object_add(made, SGP_MEMORY_POOL, pool_destroy)) {
        free(made);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->next = pools;
    pools = made;
    made->device = device;
    made->max_bytes = poolProps->maxSize;
    for (int i = 0; i < 3; i++) {
        made->reuse[i] = 1;
    }
    *pool = made;
    return sgp_leave(CUDA_SUCCESS);
}

/* With the lock; on error nothing is locked. */
static CUresult enter_pool(CUmemoryPool pool)
{
    return sgp_enter_object(pool, SGP_MEMORY_POOL, CUDA_ERROR_INVALID_VALUE);
}

/* What is allocated stays until it is freed. */
SGP_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = enter_pool(pool);

    if (result) {
        return result;
    }
    if (pool == pool->device->default_pool) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (pool->device->pool == pool) {
        pool->device->pool = pool->device->default_pool;
    }
    pool->is_destroyed = true;
    trim(pool, 0);
    sgp_object_remove(pool);
    sgp_object_release(pool);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult result = enter_pool(pool);

    if (result) {
        return result;
    }
    trim(pool, minBytesToKeep);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = sgp_with_argument(enter_pool(pool), value);

    if (result) {
        return result;
    }
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold_bytes = *(cuuint64_t *)value;
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(cuuint64_t *)value) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
        if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            pool->used_high_bytes = pool->used_bytes;
        } else {
            pool->reserved_high_bytes = pool->reserved_bytes;
        }
        return sgp_leave(CUDA_SUCCESS);
    default:
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
}

SGP_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = sgp_with_argument(enter_pool(pool), value);

    if (result) {
        return result;
    }
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->release_threshold_bytes;
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved_bytes;
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high_bytes;
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used_bytes;
        return sgp_leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high_bytes;
        return sgp_leave(CUDA_SUCCESS);
    default:
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
}

/* Every device's memory is in this process: access cannot be taken away, nor need it be given. */
SGP_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    struct sgp_device *device;
    CUresult result = enter_pool(pool);

    if (result) {
        return result;
    }
    if (count && !map) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_own_device(&map[i].location, &device)) {
            return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
        }
        if (device == pool->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    struct sgp_device *device;
    CUresult result = enter_pool(memPool);

    if (result) {
        return result;
    }
    if (!flags || !location || !is_own_device(location, &device)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return sgp_leave(CUDA_SUCCESS);
}
