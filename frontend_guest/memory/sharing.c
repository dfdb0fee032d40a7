/*
 * Memory of cuMemAlloc in other programs of this machine. A handle is a key, by which the host knows the allocation,
 * and which part of that it is: of small memory the whole slab is shared. What was opened counts here how often, so the
 * host opens an allocation once for each context.
 *
 * The host answers CUDA_ERROR_NOT_READY while it looks for something, and is asked again; the worker waits for nobody.
 *
 * Wrong when: a kernel of this program never ends. The first cuIpcGetMemHandle of memory waits for it, where a GPU's
 * driver would not. Or when other threads keep the device busy without a break for ten seconds: it fails then.
 */
#include "memory/sharing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "cuda_api/prototypes.h"
#include "memory/asking.h"
#include "memory/ranges.h"
#include "memory/span.h"

#define HANDLE_MAGIC UINT64_C(0x6d656d6370697646)

struct key {
    uint64_t words[2];
};

struct handle {
    uint64_t magic;
    struct key key;
    uint64_t offset, bytes; /* of the allocation that is known by the key */
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle is what CUDA has room for");

struct opened {
    struct opened *next;
    const struct fgv_context *context;
    uint64_t context_handle;
    struct key key;
    uint64_t base, base_bytes; /* of the allocation, which others here may be parts of, too */
    uint64_t offset;
    uint32_t nr_opens;
};

/* A handle that was given, so that the same memory has the same one without a wait. */
struct given {
    struct given *next;
    uint64_t address;
    uint64_t id; /* of the range there, which no other has */
    struct handle handle;
};

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct opened *first;
static struct given *first_given;

/* ---- this program's memory ---- */

static CUresult ask_export(uint64_t address, struct fgv_reply_ipc_export *reply)
{
    struct fgv_call call;
    struct fgv_request_ipc_export *request = fgv_call_begin(&call, FGV_CALL_ipc_export, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->address = address;
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

static bool find_given(const struct fgv_range *range, struct handle *handle)
{
    pthread_mutex_lock(&books);
    const struct given *given = first_given;
    while (given && given->id != range->id) {
        given = given->next;
    }
    if (given) {
        *handle = given->handle;
    }
    pthread_mutex_unlock(&books);
    return given;
}

/* Those of memory that is gone go. Without memory for it, the host is asked again. */
static void keep_given(const struct fgv_range *range, const struct handle *handle)
{
    struct fgv_range now;
    pthread_mutex_lock(&books);
    for (struct given **link = &first_given; *link;) {
        struct given *given = *link;
        if (!fgv_memory_find(given->address, &now) || now.id != given->id) {
            *link = given->next;
            free(given);
        } else {
            link = &given->next;
        }
    }
    struct given *given = malloc(sizeof(*given));
    if (given) {
        *given = (struct given){.next = first_given, .address = range->address, .id = range->id, .handle = *handle};
        first_given = given;
    }
    pthread_mutex_unlock(&books);
}

static void fill(CUipcMemHandle *to, const struct handle *handle)
{
    memset(to, 0, sizeof(*to));
    memcpy(to, handle, sizeof(*handle));
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct fgv_range range;
    struct fgv_reply_ipc_export reply;
    struct handle handle;
    uint32_t nr_naps = 0;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pHandle || !fgv_memory_find(dptr, &range) || range.kind != FGV_MEMORY_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (find_given(&range, &handle)) {
        fill(pHandle, &handle);
        return CUDA_SUCCESS;
    }
    do {
        result = ask_export(range.address, &reply);
    } while (fgv_asking_again(result, &nr_naps));
    if (result == CUDA_SUCCESS) {
        handle = (struct handle){.magic = HANDLE_MAGIC,
                                 .key = {{reply.key[0], reply.key[1]}},
                                 .offset = range.address - reply.base,
                                 .bytes = range.bytes};
        keep_given(&range, &handle);
        fill(pHandle, &handle);
    }
    return fgv_asking_settled(result);
}

/* ---- another program's ---- */

/* Some part of the allocation that is open in the current context. With the books. */
static struct opened *find(const struct key *key)
{
    struct opened *opened = first;
    while (opened && (opened->context_handle != fgv_thread.current || memcmp(&opened->key, key, sizeof(*key)) != 0)) {
        opened = opened->next;
    }
    return opened;
}

static struct opened *find_part(uint64_t context_handle, uint64_t address)
{
    struct opened *opened = first;
    while (opened && (opened->context_handle != context_handle || opened->base + opened->offset != address)) {
        opened = opened->next;
    }
    return opened;
}

static CUresult ask_open(const struct key *key, struct fgv_reply_ipc_open *reply)
{
    struct fgv_call call;
    struct fgv_request_ipc_open *request = fgv_call_begin(&call, FGV_CALL_ipc_open, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_ipc_open){.key = {key->words[0], key->words[1]}};
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

static CUresult ask_close(uint64_t base, uint64_t context_handle)
{
    struct fgv_call call;
    struct fgv_request_ipc_close *request =
        fgv_call_begin_for(&call, FGV_CALL_ipc_close, sizeof(*request), 0, context_handle);
    if (!request) {
        return call.error;
    }
    request->address = base;
    return fgv_call_wait(&call, NULL, 0);
}

/* Where the allocation lies in the current context, as far as it is open there. Between fgv_asking_begin and
 * fgv_asking_end. */
static CUresult base_of(const struct handle *handle, struct fgv_reply_ipc_open *reply, bool *is_new)
{
    uint32_t nr_naps = 0;
    pthread_mutex_lock(&books);
    const struct opened *known = find(&handle->key);
    if (known) {
        *reply = (struct fgv_reply_ipc_open){.address = known->base, .bytes = known->base_bytes};
    }
    pthread_mutex_unlock(&books);
    *is_new = !known;
    if (known) {
        return CUDA_SUCCESS;
    }
    CUresult result;
    do {
        result = ask_open(&handle->key, reply);
    } while (fgv_asking_again(result, &nr_naps));
    return fgv_asking_settled(result);
}

/* Counts it, or enters it. Between fgv_asking_begin and fgv_asking_end. */
static CUresult enter(const struct handle *handle, const struct fgv_reply_ipc_open *reply)
{
    const uint64_t address = reply->address + handle->offset;
    if (handle->bytes == 0 || handle->offset > reply->bytes || handle->bytes > reply->bytes - handle->offset) {
        return CUDA_ERROR_INVALID_VALUE; /* forged */
    }
    pthread_mutex_lock(&books);
    struct opened *opened = find_part(fgv_thread.current, address);
    if (!opened) {
        opened = calloc(1, sizeof(*opened));
        if (!opened || !fgv_memory_enter(address, handle->bytes, FGV_MEMORY_IMPORTED, 0, 0)) {
            free(opened);
            pthread_mutex_unlock(&books);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *opened = (struct opened){.next = first,
                                  .context = fgv_thread.context,
                                  .context_handle = fgv_thread.current,
                                  .key = handle->key,
                                  .base = reply->address,
                                  .base_bytes = reply->bytes,
                                  .offset = handle->offset};
        first = opened;
    }
    opened->nr_opens++;
    pthread_mutex_unlock(&books);
    return CUDA_SUCCESS;
}

static CUresult open_handle(const struct handle *handle, uint64_t *address)
{
    struct fgv_reply_ipc_open reply;
    bool is_new;
    fgv_asking_begin();
    CUresult result = base_of(handle, &reply, &is_new);
    if (result == CUDA_SUCCESS) {
        result = enter(handle, &reply);
        *address = reply.address + handle->offset;
        if (result != CUDA_SUCCESS && is_new) {
            ask_close(reply.address, fgv_thread.current);
        }
    }
    fgv_asking_end();
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct handle given;
    uint64_t address = 0;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(&given, &handle, sizeof(given));
    if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || given.magic != HANDLE_MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    result = fgv_span_open();
    if (result == CUDA_SUCCESS) {
        result = open_handle(&given, &address);
    }
    if (result == CUDA_SUCCESS) {
        *pdptr = address;
    }
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

/* Takes one out of the list. Whether it was the last part of its allocation. With the books. */
static bool take_out(struct opened *gone)
{
    struct opened **link = &first;
    while (*link != gone) {
        link = &(*link)->next;
    }
    *link = gone->next;
    for (const struct opened *other = first; other; other = other->next) {
        if (other->context_handle == gone->context_handle && other->base == gone->base) {
            return false;
        }
    }
    return true;
}

static CUresult close_at(const struct fgv_range *range)
{
    struct fgv_range removed;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books);
    struct opened *opened = find_part(range->context_handle, range->address);
    if (!opened) {
        pthread_mutex_unlock(&books);
        return CUDA_ERROR_INVALID_VALUE; /* another thread closes it, too */
    }
    const bool is_last = --opened->nr_opens == 0;
    const bool is_unused = is_last && take_out(opened);
    pthread_mutex_unlock(&books);
    if (is_last) {
        fgv_memory_remove(range->address, FGV_MEMORY_IMPORTED, &removed);
        result = is_unused ? ask_close(opened->base, opened->context_handle) : CUDA_SUCCESS;
        free(opened);
    }
    return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct fgv_range range;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fgv_memory_find(dptr, &range) || range.kind != FGV_MEMORY_IMPORTED || range.address != dptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgv_capture_forbids()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    fgv_asking_begin(); /* who opens it meanwhile finds it open, or asks for it behind this */
    result = close_at(&range);
    fgv_asking_end();
    return result;
}

void fgv_sharing_forget_context(const struct fgv_context *context)
{
    pthread_mutex_lock(&books);
    for (struct opened **link = &first; *link;) {
        struct opened *opened = *link;
        if (opened->context == context) {
            *link = opened->next;
            free(opened);
        } else {
            link = &opened->next;
        }
    }
    pthread_mutex_unlock(&books);
}
