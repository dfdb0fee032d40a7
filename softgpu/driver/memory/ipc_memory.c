/*
 * Memory of cuMemAlloc in other processes. What is first asked to be shared moves into a shared file, at its address,
 * once nothing runs that uses memory; its handle says where the file is found (shared_file.h).
 *
 * Wrong when: a kernel of this process never ends. cuIpcGetMemHandle waits for it, where a GPU's driver would not.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

#define HANDLE_MAGIC UINT64_C(0x6d656d6370695347)

struct handle {
    uint64_t magic;
    struct sgp_shared_place place;
    uint64_t bytes; /* as the program asked */
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle is what CUDA has room for");

struct import {
    struct sgp_share share; /* first: the allocation leads to it */
    struct import *next;
    uint64_t inode;
    struct CUctx_st *context;
    uintptr_t address;
    uint32_t nr_opens;
};

static struct import *imports;

static void export_deleted(struct sgp_allocation *allocation)
{
    sgp_share_end(allocation->share);
    free(allocation->share);
}

static const struct sgp_memory_owner export_owner = {.deleted = export_deleted};

static CUresult move_into_file(struct sgp_allocation *allocation)
{
    struct sgp_share *share = malloc(sizeof(*share));
    CUresult result;

    if (!share) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_share_new(share, SGP_SHARED_MEMORY, allocation->context->device, allocation->mapped_bytes);
    if (result) {
        free(share);
        return result;
    }
    if (!sgp_memory_move_into(allocation, share)) {
        sgp_share_end(share);
        free(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->owner = &export_owner;
    return CUDA_SUCCESS;
}

static struct sgp_allocation *exportable(CUdeviceptr address)
{
    struct sgp_allocation *allocation = sgp_memory_find(address);

    return allocation && allocation->kind == SGP_MEMORY_DEVICE && !allocation->freed_in ? allocation : NULL;
}

SGP_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct CUctx_st *context;
    struct sgp_allocation *allocation;
    struct handle handle = {.magic = HANDLE_MAGIC};
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    allocation = pHandle ? exportable(dptr) : NULL;
    if (allocation && !allocation->share) {
        sgp_queue_rest();
        allocation = exportable(dptr); /* others ran meanwhile */
    }
    if (!allocation) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!allocation->share) {
        result = move_into_file(allocation);
    }
    if (!result) {
        result = sgp_share_export(allocation->share, allocation->mapped_bytes);
    }
    if (!result && !sgp_shared_place_of(allocation->share->file, &handle.place)) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!result) {
        handle.bytes = allocation->bytes;
        memset(pHandle, 0, sizeof(*pHandle));
        memcpy(pHandle, &handle, sizeof(handle));
    }
    return sgp_leave(result);
}

static void import_deleted(struct sgp_allocation *allocation)
{
    struct import *import = (struct import *)allocation->share, **link = &imports;

    while (*link != import) {
        link = &(*link)->next;
    }
    *link = import->next;
    sgp_share_end(&import->share);
    free(import);
}

static const struct sgp_memory_owner import_owner = {.deleted = import_deleted};

/* With the file open. */
static CUresult map_import(struct import *import, uint64_t bytes)
{
    void *address;
    CUresult result = sgp_memory_new_in(import->context, bytes, SGP_MEMORY_IMPORTED, &import->share, 0, true, &address);

    if (result) {
        return result;
    }
    import->address = (uintptr_t)address;
    import->nr_opens = 1;
    import->next = imports;
    imports = import;
    sgp_memory_find(import->address)->owner = &import_owner;
    return CUDA_SUCCESS;
}

/* The file that a handle leads to; -1: it leads to none that is long enough. */
static int open_file(const struct handle *handle, struct sgp_shared_head *head)
{
    int file = sgp_shared_open(&handle->place, SGP_SHARED_MEMORY, head);

    if (file >= 0 && (!handle->bytes || handle->bytes > head->bytes)) {
        close(file);
        return -1;
    }
    return file;
}

static CUresult import_new(struct CUctx_st *context, const struct handle *handle, struct import **made)
{
    struct sgp_shared_head head;
    int file = open_file(handle, &head);
    struct import *import = file >= 0 ? calloc(1, sizeof(*import)) : NULL;
    CUresult result = file < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;

    if (import) {
        import->inode = handle->place.inode;
        import->context = context;
        result = sgp_share_import(&import->share, file, &head);
    }
    if (result) {
        free(import);
        if (file >= 0) {
            close(file);
        }
        return result;
    }
    result = map_import(import, handle->bytes);
    if (result) {
        sgp_share_end(&import->share);
        free(import);
        return result;
    }
    *made = import;
    return CUDA_SUCCESS;
}

/* What the context has open already is opened once more, also when who made it is gone. */
static struct import *import_find(const struct CUctx_st *context, uint64_t inode)
{
    struct import *import = imports;

    while (import && (import->context != context || import->inode != inode)) {
        import = import->next;
    }
    return import;
}

SGP_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct CUctx_st *context;
    struct handle given;
    struct import *import;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    memcpy(&given, &handle, sizeof(given));
    if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || given.magic != HANDLE_MAGIC) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (given.place.process == (uint64_t)getpid()) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    import = import_find(context, given.place.inode);
    if (import) {
        import->nr_opens++;
    } else {
        result = import_new(context, &given, &import);
    }
    if (!result) {
        *pdptr = import->address;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

/* With the lock: what was opened here; NULL: nothing. */
static struct import *opened_at(CUdeviceptr address)
{
    const struct sgp_allocation *allocation = sgp_memory_find(address);

    return allocation && allocation->kind == SGP_MEMORY_IMPORTED && allocation->start == address
               ? (struct import *)allocation->share
               : NULL;
}

SGP_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct CUctx_st *context, *owner;
    struct import *import;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    import = opened_at(dptr);
    if (!import || !import->nr_opens) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    owner = import->context;
    if (--import->nr_opens == 0) {
        sgp_object_keep(owner);
        sgp_queue_drain(owner); /* a kernel may still use it */
        import = opened_at(dptr);
        if (import && !import->nr_opens) { /* others ran meanwhile */
            sgp_memory_delete(sgp_memory_find(dptr));
        }
        sgp_object_release(owner);
    }
    return sgp_leave(CUDA_SUCCESS);
}
