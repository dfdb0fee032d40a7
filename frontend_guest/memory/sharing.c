/*
 * See sharing.h. What was opened counts here how often, so the host opens an allocation once for each context.
 *
 * Wrong when: a kernel of this program never ends. What passes memory on for the first time waits for it, where a GPU's
 * driver would not. Or when other threads keep the device busy without a break for ten seconds: it fails then.
 */
#include "memory/sharing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "memory/asking.h"
#include "memory/ranges.h"
#include "memory/span.h"

struct opened {
    struct opened *next;
    const struct fgv_context *context;
    uint64_t context_handle;
    uint64_t pool;
    uint64_t base, base_bytes; /* of all that the key opens, which others here may be parts of, too */
    struct fgv_shared_part part;
    uint32_t nr_opens;
};

/* A part that was passed on, so that the same memory is the same part without a wait. */
struct given {
    struct given *next;
    uint64_t address;
    uint64_t id; /* of the range there, which no other has */
    struct fgv_shared_part part;
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

static bool find_given(const struct fgv_range *range, struct fgv_shared_part *part)
{
    pthread_mutex_lock(&books);
    const struct given *given = first_given;
    while (given && given->id != range->id) {
        given = given->next;
    }
    if (given) {
        *part = given->part;
    }
    pthread_mutex_unlock(&books);
    return given;
}

/* Those of memory that is gone go. Without memory for it, the host is asked again. */
static void keep_given(const struct fgv_range *range, const struct fgv_shared_part *part)
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
        *given = (struct given){.next = first_given, .address = range->address, .id = range->id, .part = *part};
        first_given = given;
    }
    pthread_mutex_unlock(&books);
}

CUresult fgv_sharing_export(const struct fgv_range *range, struct fgv_shared_part *part)
{
    struct fgv_reply_ipc_export reply;
    uint32_t nr_naps = 0;
    CUresult result;
    if (find_given(range, part)) {
        return CUDA_SUCCESS;
    }
    do {
        result = ask_export(range->address, &reply);
    } while (fgv_asking_again(result, &nr_naps));
    if (result == CUDA_SUCCESS) {
        *part = (struct fgv_shared_part){
            .key = {reply.key[0], reply.key[1]}, .offset = range->address - reply.base, .bytes = range->bytes};
        keep_given(range, part);
    }
    return fgv_asking_settled(result);
}

/* ---- another program's ---- */

/* Some part that is open in the current context of what the key opens. With the books. */
static struct opened *find(const struct fgv_shared_part *part)
{
    struct opened *opened = first;
    while (opened && (opened->context_handle != fgv_thread.current ||
                      memcmp(opened->part.key, part->key, sizeof(part->key)) != 0)) {
        opened = opened->next;
    }
    return opened;
}

static struct opened *find_part(uint64_t context_handle, uint64_t address)
{
    struct opened *opened = first;
    while (opened && (opened->context_handle != context_handle || opened->base + opened->part.offset != address)) {
        opened = opened->next;
    }
    return opened;
}

static CUresult ask_open(const struct fgv_shared_part *part, uint64_t pool, struct fgv_reply_ipc_open *reply)
{
    struct fgv_call call;
    struct fgv_request_ipc_open *request = fgv_call_begin(&call, FGV_CALL_ipc_open, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_ipc_open){.key = {part->key[0], part->key[1]}, .may_be_own = pool != 0};
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

/* Where it lies in the current context, as far as it is open there. Between fgv_asking_begin and fgv_asking_end. */
static CUresult base_of(const struct fgv_shared_part *part, uint64_t pool, struct fgv_reply_ipc_open *reply,
                        bool *is_new)
{
    uint32_t nr_naps = 0;
    pthread_mutex_lock(&books);
    const struct opened *known = find(part);
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
        result = ask_open(part, pool, reply);
    } while (fgv_asking_again(result, &nr_naps));
    return fgv_asking_settled(result);
}

/* Counts it, or enters it. Between fgv_asking_begin and fgv_asking_end. */
static CUresult enter(const struct fgv_shared_part *part, uint64_t pool, const struct fgv_reply_ipc_open *reply)
{
    const uint64_t address = reply->address + part->offset;
    if (part->bytes == 0 || part->offset > reply->bytes || part->bytes > reply->bytes - part->offset) {
        return CUDA_ERROR_INVALID_VALUE; /* forged */
    }
    pthread_mutex_lock(&books);
    struct opened *opened = find_part(fgv_thread.current, address);
    if (!opened) {
        opened = calloc(1, sizeof(*opened));
        if (!opened || !fgv_memory_enter(address, part->bytes, FGV_MEMORY_IMPORTED, 0, pool)) {
            free(opened);
            pthread_mutex_unlock(&books);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *opened = (struct opened){.next = first,
                                  .context = fgv_thread.context,
                                  .context_handle = fgv_thread.current,
                                  .pool = pool,
                                  .base = reply->address,
                                  .base_bytes = reply->bytes,
                                  .part = *part};
        first = opened;
    }
    opened->nr_opens++;
    pthread_mutex_unlock(&books);
    return CUDA_SUCCESS;
}

CUresult fgv_sharing_open(const struct fgv_shared_part *part, uint64_t pool, uint64_t *address)
{
    struct fgv_reply_ipc_open reply;
    bool is_new;
    CUresult result = fgv_span_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgv_asking_begin();
    result = base_of(part, pool, &reply, &is_new);
    if (result == CUDA_SUCCESS) {
        result = enter(part, pool, &reply);
        *address = reply.address + part->offset;
        if (result != CUDA_SUCCESS && is_new) {
            ask_close(reply.address, fgv_thread.current);
        }
    }
    fgv_asking_end();
    return result;
}

/* Takes one out of the list. Whether it was the last part of what its key opened. With the books. */
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

CUresult fgv_sharing_close(const struct fgv_range *range)
{
    fgv_asking_begin(); /* who opens it meanwhile finds it open, or asks for it behind this */
    const CUresult result = close_at(range);
    fgv_asking_end();
    return result;
}

/* Whether one that is nearer to the list's head is a part of the same memory. */
static bool is_counted(const struct opened *opened)
{
    const struct opened *other = first;
    while (other->base != opened->base || other->context_handle != opened->context_handle) {
        other = other->next;
    }
    return other != opened;
}

void fgv_sharing_count(uint64_t pool, uint64_t *used_bytes, uint64_t *reserved_bytes)
{
    *used_bytes = *reserved_bytes = 0;
    pthread_mutex_lock(&books);
    for (const struct opened *opened = first; opened; opened = opened->next) {
        if (opened->pool == pool) {
            *used_bytes += opened->part.bytes;
            *reserved_bytes += is_counted(opened) ? 0 : opened->base_bytes;
        }
    }
    pthread_mutex_unlock(&books);
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
