/*
 * Memory pools of other programs of this machine. A pool is passed on as a file descriptor (key_file.h), which names
 * the program that made it and the pool there; the host has no part in it. A piece of it is passed on by that name, and
 * as the part of what the host knows by a key (sharing.h) that it is.
 *
 * Wrong when: the program that made the pool has ended before another one imports it, or a piece of it. NVIDIA's
 * descriptors keep what they stand for; these do not.
 */
#include "memory/share_pool.h"

#include <pthread.h>
#include <string.h>

#include "base/handles.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "cuda_api/prototypes.h"
#include "ivshmem/region.h"
#include "memory/key_file.h"
#include "memory/ranges.h"
#include "memory/sharing.h"
#include "region/client.h"

static const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/* What tells one piece of a pool. */
struct pointer {
    uint64_t pool[2];
    struct fgv_shared_part part;
};

_Static_assert(sizeof(struct pointer) <= sizeof(CUmemPoolPtrExportData), "it is what CUDA has room for");

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct fgv_memory_pool *imported; /* of all that this program has */

/* ---- names ---- */

/* This program's number in the region is above the pool's, which is a handle's. */
#define CLIENT_SHIFT 56u

/* The first word is random, for each program, and tells one that has ended from the next with its number. */
static void name_of(uint64_t handle, uint64_t *words)
{
    words[0] = fgv_guest.client->commit_key;
    words[1] = (uint64_t)fgv_guest.index << CLIENT_SHIFT | (handle & ((UINT64_C(1) << CLIENT_SHIFT) - 1));
}

static bool is_of_a_living_program(const uint64_t *words)
{
    const uint64_t index = words[1] >> CLIENT_SHIFT;
    if (index >= FGV_NR_CLIENTS) {
        return false;
    }
    const struct fgv_client *client = &fgv_guest.region.clients[index];
    /* Acquire: the entry was filled before. */
    return atomic_load_explicit(&client->state, memory_order_acquire) == FGV_CLIENT_READY &&
           client->commit_key == words[0];
}

/* ---- pools ---- */

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                          unsigned long long flags)
{
    struct fgv_memory_pool *found;
    uint64_t words[2];
    CUresult result = fgv_memory_pool_check(pool, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!handle_out || flags != 0 || handleType != type || !found->is_shareable) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    name_of((uint64_t)(uintptr_t)pool, words);
    const int file = fgv_key_file_new(FGV_KEY_POOL, words);
    if (file < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    found->is_exported = true;
    *(int *)handle_out = file;
    return CUDA_SUCCESS;
}

static struct fgv_memory_pool *find_imported(const uint64_t *words)
{
    struct fgv_memory_pool *pool = imported;
    while (pool && memcmp(pool->import.words, words, sizeof(pool->import.words)) != 0) {
        pool = pool->import.next;
    }
    return pool;
}

/* With the books. */
static CUresult enter(const uint64_t *words, struct fgv_memory_pool **pool)
{
    struct fgv_memory_pool *known = find_imported(words);
    uint64_t handle;
    if (known) {
        *pool = known;
        return CUDA_SUCCESS;
    }
    if (!is_of_a_living_program(words)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgv_memory_pool_new(
        &(struct fgv_memory_pool){.is_imported = true, .import = {.words = {words[0], words[1]}, .next = imported}},
        &handle);
    if (result == CUDA_SUCCESS) {
        imported = *pool = fgv_handle_object(FGV_HANDLE_MEMORY_POOL, handle);
        imported->import.handle = handle;
    }
    return result;
}

/* The same pool again is the same handle, and ends when it was destroyed as often. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    struct fgv_key_file content;
    struct fgv_memory_pool *pool;
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pool_out || flags != 0 || handleType != type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgv_key_file_read((int)(uintptr_t)handle, &content)) {
        return CUDA_ERROR_UNKNOWN;
    }
    if (content.kind != FGV_KEY_POOL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&books);
    result = enter(content.words, &pool);
    if (result == CUDA_SUCCESS) {
        pool->import.nr_times++;
        *pool_out = (CUmemoryPool)(uintptr_t)pool->import.handle;
    }
    pthread_mutex_unlock(&books);
    return result;
}

void fgv_memory_pool_unimport(struct fgv_memory_pool *pool)
{
    pthread_mutex_lock(&books);
    if (--pool->import.nr_times == 0) {
        struct fgv_memory_pool **link = &imported;
        while (*link != pool) {
            link = &(*link)->import.next;
        }
        *link = pool->import.next;
        fgv_memory_pool_drop(pool, pool->import.handle);
    }
    pthread_mutex_unlock(&books);
}

/* Of an imported pool what is open here counts, and nothing is set. */
CUresult fgv_memory_pool_ask_imported(struct fgv_memory_pool *pool, CUmemPool_attribute attr, uint64_t *value)
{
    uint64_t used_bytes, reserved_bytes;
    fgv_sharing_count(pool->import.handle, &used_bytes, &reserved_bytes);
    switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *value = reserved_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *value = pool->import.reserved_high_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *value = used_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *value = pool->import.used_high_bytes;
        return CUDA_SUCCESS;
    default:
        *value = 1; /* what pools allow */
        return CUDA_SUCCESS;
    }
}

static void count_use(struct fgv_memory_pool *pool)
{
    uint64_t used_bytes, reserved_bytes;
    pthread_mutex_lock(&books);
    fgv_sharing_count(pool->import.handle, &used_bytes, &reserved_bytes);
    if (used_bytes > pool->import.used_high_bytes) {
        pool->import.used_high_bytes = used_bytes;
    }
    if (reserved_bytes > pool->import.reserved_high_bytes) {
        pool->import.reserved_high_bytes = reserved_bytes;
    }
    pthread_mutex_unlock(&books);
}

/* ---- pieces ---- */

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    struct fgv_range range;
    struct pointer pointer;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!shareData_out || !fgv_memory_find(ptr, &range) || range.kind != FGV_MEMORY_POOLED || range.address != ptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgv_memory_pool *pool = fgv_memory_pool_find((CUmemoryPool)(uintptr_t)range.owner);
    if (!pool || !pool->is_exported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    name_of(range.owner, pointer.pool);
    result = fgv_sharing_export(&range, &pointer.part);
    if (result == CUDA_SUCCESS) {
        memset(shareData_out, 0, sizeof(*shareData_out));
        memcpy(shareData_out, &pointer, sizeof(pointer));
    }
    return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
    struct fgv_memory_pool *found;
    struct pointer pointer;
    uint64_t address;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_memory_pool_check(pool, &found);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!ptr_out || !shareData || !found->is_imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&pointer, shareData, sizeof(pointer));
    if (memcmp(pointer.pool, found->import.words, sizeof(pointer.pool)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    result = fgv_sharing_open(&pointer.part, found->import.handle, &address);
    if (result == CUDA_SUCCESS) {
        *ptr_out = address;
        count_use(found);
    }
    return result;
}
