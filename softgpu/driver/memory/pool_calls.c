/* Pools made, set and asked, by this process or by another one: what is allocated from them is pool.c. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"
#include "memory/pool.h"

#define POINTER_MAGIC UINT64_C(0x72746e6f506c6f50)

/* Where a piece of a pool is in its file. */
struct pointer {
    uint64_t magic;
    uint64_t offset;
    uint64_t bytes;
};

_Static_assert(sizeof(struct pointer) <= sizeof(CUmemPoolPtrExportData), "it is what CUDA has room for");

static bool is_own_device(const CUmemLocation *location, struct sgp_device **device)
{
    *device = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? sgp_device_find(location->id) : NULL;
    return *device != NULL;
}

static CUresult shareable_new(struct sgp_device *device, struct CUmemPoolHandle_st **made)
{
    struct sgp_share *share = malloc(sizeof(*share));

    if (!share || sgp_share_new(share, SGP_SHARED_POOL, device, 0)) {
        free(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = sgp_pool_new(device, share);
    if (!*made) {
        sgp_share_end(share);
        free(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*made)->handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return CUDA_SUCCESS;
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
    if (poolProps->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (!is_own_device(&poolProps->location, &device)) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (poolProps->handleTypes) {
        result = shareable_new(device, &made);
    } else {
        made = sgp_pool_new(device, NULL);
        result = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!result) {
        made->max_bytes = poolProps->maxSize;
        *pool = made;
    }
    return sgp_leave(result);
}

/* On error nothing is locked. */
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
    if (pool->nr_imports && --pool->nr_imports) {
        return sgp_leave(CUDA_SUCCESS);
    }
    if (pool->device->pool == pool) {
        pool->device->pool = pool->device->default_pool;
    }
    pool->is_destroyed = true;
    sgp_pool_trim(pool, 0);
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
    if (pool->nr_imports) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    sgp_pool_trim(pool, minBytesToKeep);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = sgp_with_argument(enter_pool(pool), value);

    if (result) {
        return result;
    }
    if (pool->nr_imports) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
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

/* ---- sharing ---- */

SGP_EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                                     CUmemAllocationHandleType handleType, unsigned long long flags)
{
    int file;
    CUresult result = sgp_with_argument(enter_pool(pool), handle_out);

    if (result) {
        return result;
    }
    if (flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pool->handle_types != handleType) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = sgp_share_export(pool->share, pool->reserved_bytes);
    if (result) {
        return sgp_leave(result);
    }
    file = fcntl(pool->share->file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        return sgp_leave(CUDA_ERROR_OPERATING_SYSTEM);
    }
    *(int *)handle_out = file;
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult pool_import(int given, uint64_t inode, const struct sgp_shared_head *head,
                            struct CUmemPoolHandle_st **imported)
{
    struct sgp_share *share = malloc(sizeof(*share));
    int file = share ? fcntl(given, F_DUPFD_CLOEXEC, 0) : -1;
    CUresult result = file < 0 ? CUDA_ERROR_OUT_OF_MEMORY : sgp_share_import(share, file, head);

    if (result) {
        if (file >= 0) {
            close(file);
        }
        free(share);
        return result;
    }
    *imported = sgp_pool_new(share->device, share);
    if (!*imported) {
        sgp_share_end(share);
        free(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*imported)->inode = inode;
    return CUDA_SUCCESS;
}

/* The same pool again is the same handle, as with NVIDIA's driver, and ends when it was destroyed as often. */
SGP_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                       CUmemAllocationHandleType handleType, unsigned long long flags)
{
    const int given = (int)(uintptr_t)handle;
    struct sgp_shared_head head;
    struct sgp_shared_place place;
    struct CUmemPoolHandle_st *pool;
    CUresult result = sgp_with_argument(sgp_enter_driver(), pool_out);

    if (result) {
        return result;
    }
    if (flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_shared_read(given, &head) || !sgp_shared_place_of(given, &place)) {
        return sgp_leave(CUDA_ERROR_UNKNOWN);
    }
    if (head.kind != SGP_SHARED_POOL) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    pool = sgp_pool_imported(place.inode);
    result = pool ? CUDA_SUCCESS : pool_import(given, place.inode, &head, &pool);
    if (!result) {
        pool->nr_imports++;
        *pool_out = pool;
    }
    return sgp_leave(result);
}

/* Of a pool that was exported before, as NVIDIA's driver wants it. */
SGP_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    const struct sgp_allocation *allocation;
    struct pointer pointer = {.magic = POINTER_MAGIC};
    CUresult result = sgp_with_argument(sgp_enter_driver(), shareData_out);

    if (result) {
        return result;
    }
    allocation = sgp_memory_find(ptr);
    if (!allocation || allocation->start != ptr || allocation->kind != SGP_MEMORY_POOLED || allocation->is_imported ||
        allocation->is_kept || allocation->freed_in || !allocation->share || !allocation->share->is_exported) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    pointer.offset = allocation->share_offset;
    pointer.bytes = allocation->bytes;
    memset(shareData_out, 0, sizeof(*shareData_out));
    memcpy(shareData_out, &pointer, sizeof(pointer));
    return sgp_leave(CUDA_SUCCESS);
}

/* Whether it lies in the pool's file, which may have grown. */
static bool is_in_file(const struct pointer *pointer, int file)
{
    struct stat status;
    uint64_t bytes;

    if (fstat(file, &status) || (uint64_t)status.st_size < SGP_SHARED_HEAD_BYTES) {
        return false;
    }
    bytes = (uint64_t)status.st_size - SGP_SHARED_HEAD_BYTES;
    return pointer->magic == POINTER_MAGIC && pointer->bytes && pointer->offset % SGP_PAGE_BYTES == 0 &&
           pointer->offset <= bytes && pointer->bytes <= bytes - pointer->offset;
}

SGP_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
    struct CUctx_st *context;
    struct pointer pointer;
    CUresult result = sgp_with_argument(sgp_with_argument(sgp_enter(&context), ptr_out), shareData);

    if (result) {
        return result;
    }
    if (!sgp_object_is(pool, SGP_MEMORY_POOL) || !pool->nr_imports) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    memcpy(&pointer, shareData, sizeof(pointer));
    if (!is_in_file(&pointer, pool->share->file)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(sgp_pool_import(context, pool, pointer.offset, pointer.bytes, ptr_out));
}
