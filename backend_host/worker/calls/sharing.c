/*
 * Memory that programs of one vGPU share. Who allocated it puts it on the vGPU's shelf, in the daemon (exports.h); who
 * has its key asks the daemon for it and maps it at addresses of its own span.
 *
 * The daemon looks on the shelf of this worker's vGPU alone, so another vGPU's key opens nothing. While it has not
 * answered, the guest is answered CUDA_ERROR_NOT_READY and asks again: the loop waits for nobody. What is opened counts
 * against the quota, as it did where it was allocated: it stays here when that is freed.
 *
 * Wrong when: a guest asks for two keys in turn, without waiting for the first. It hears of neither.
 */
#include "calls/sharing.h"

#include "base/count.h"
#include "calls/exports.h"
#include "calls/extent_files.h"
#include "calls/memory.h"
#include "calls/pool.h"
#include "calls/span.h"
#include "client/daemon.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"
#include "page/account.h"
#include "page/layout.h"
#include "page/shares.h"
#include "track/state.h"

static struct fgw_key key_of(const uint64_t *words)
{
    return (struct fgw_key){{words[0], words[1]}};
}

/* Of an allocation, or a piece of a pool. The descriptors go to the daemon; none stays here. */
static CUresult share(struct fgw_worker *worker, const struct fgw_range *whole, struct fgw_key *key)
{
    const uint64_t bytes = fgw_span_round(whole->bytes);
    int files[FGW_MAX_SHARED_FILES];
    uint32_t nr_files;
    if (fgw_exports_find(worker, whole->address, key)) {
        return CUDA_SUCCESS;
    }
    if (worker->track->busy) {
        return CUDA_ERROR_NOT_READY; /* what came after this request may use it, too, and it will lie nowhere for a
                                        while */
    }
    CUresult result = fgw_exports_begin(worker);
    if (result == CUDA_SUCCESS) {
        result = fgw_extent_files_open(worker, whole->address, bytes, files, &nr_files);
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_exports_put(worker, whole->address, bytes, files, nr_files, key);
        fgw_extent_files_close(files, nr_files);
    }
    return result;
}

CUresult fgw_serve_ipc_export(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_ipc_export *fixed = request->fixed;
    struct fgv_reply_ipc_export *answer = reply;
    const struct fgw_range *range = fgw_ranges_around(&worker->calls->allocated, fixed->address, 1);
    struct fgw_key key;
    if (worker->calls->span.bytes == 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!range || (range->pool && !range->pool->is_shareable)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgw_range whole = range->pool ? fgw_pool_piece_of(range) : *range;
    const CUresult result = share(worker, &whole, &key);
    if (result == CUDA_SUCCESS) {
        *answer = (struct fgv_reply_ipc_export){
            .key = {key.words[0], key.words[1]}, .base = whole.address, .bytes = whole.bytes};
    }
    return result;
}

CUresult fgw_sharing_find(struct fgw_worker *worker, const struct fgw_key *key)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    const struct fgw_found *found = &worker->daemon.found;
    fgw_exports_settle(worker);
    while (fgw_daemon_read(worker)) {
    }
    if (found->is_there && fgw_key_is(&found->key, key)) {
        return found->nr_files != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if ((sharing->is_asking && fgw_key_is(&sharing->asked, key)) || !fgw_exports_may_ask(worker)) {
        return CUDA_ERROR_NOT_READY;
    }
    const struct fgw_shelf_message message = {.word = FGW_SHELF_FIND, .key = *key};
    const CUresult result = fgw_daemon_tell(worker, &message, NULL, 0);
    sharing->is_asking = result == CUDA_SUCCESS;
    sharing->asked = *key;
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

void fgw_sharing_found(struct fgw_worker *worker)
{
    fgw_daemon_forget(worker);
    worker->calls->sharing.is_asking = false;
}

/* The worker that put it there may be a hostile guest's: sizes are held against what came. */
static CUresult map(struct fgw_worker *worker, const struct fgw_found *found, uint64_t *address)
{
    const uint64_t bytes = found->bytes;
    if (bytes == 0 || bytes % FGW_SPAN_STEP_BYTES != 0 || bytes > worker->calls->span.bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgw_memory_take(worker, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fgw_span_take(worker, bytes, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = fgw_extent_files_map(worker, *address, bytes, &found->key, found->files, found->nr_files);
        if (result != CUDA_SUCCESS) {
            fgw_span_give(worker, *address);
        }
    }
    if (result != CUDA_SUCCESS) {
        fgw_quota_give(&worker->grantee, bytes);
    }
    return result;
}

static CUresult open_found(struct fgw_worker *worker, const struct fgw_key *key, struct fgv_reply_ipc_open *answer)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    const uint64_t bytes = worker->daemon.found.bytes;
    uint64_t address;
    if (sharing->nr_imports == FGW_MAX_IMPORTS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = map(worker, &worker->daemon.found, &address);
    if (result == CUDA_SUCCESS) {
        sharing->imports[sharing->nr_imports++] =
            (struct fgw_import){.address = address, .bytes = bytes, .key = *key, .context = worker->current};
        *answer = (struct fgv_reply_ipc_open){.address = address, .bytes = bytes};
    }
    return result;
}

CUresult fgw_serve_ipc_open(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_ipc_open *fixed = request->fixed;
    struct fgw_sharing *sharing = &worker->calls->sharing;
    const struct fgw_key key = key_of(fixed->key);
    if (worker->calls->span.bytes == 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (fixed->may_be_own == 0 && fgw_exports_have(worker, &key)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    for (uint32_t i = 0; i < sharing->nr_imports; i++) {
        if (sharing->imports[i].context == worker->current && fgw_key_is(&sharing->imports[i].key, &key)) {
            fgw_count(&worker->slot->nr_refused, 1); /* the guest library counts how often it is open */
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    CUresult result = fgw_sharing_find(worker, &key);
    if (result == CUDA_SUCCESS) {
        result = open_found(worker, &key, reply);
    }
    if (result != CUDA_ERROR_NOT_READY) {
        fgw_sharing_found(worker);
    }
    return result;
}

/* It has it no other way, either. */
static bool is_only(const struct fgw_worker *worker, const struct fgw_import *import)
{
    const struct fgw_sharing *sharing = &worker->calls->sharing;
    for (uint32_t i = 0; i < sharing->nr_imports; i++) {
        if (&sharing->imports[i] != import && fgw_key_is(&sharing->imports[i].key, &import->key)) {
            return false;
        }
    }
    return !fgw_exports_have(worker, &import->key);
}

static CUresult close_import(struct fgw_worker *worker, struct fgw_import *import)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    uint64_t dropped_bytes = 0;
    if (is_only(worker, import)) {
        fgw_share_leave(&worker->grantee, import->key.words[0]);
    }
    const CUresult result = fgw_span_empty(worker, import->address, import->bytes, &dropped_bytes);
    fgw_span_give(worker, import->address);
    fgw_quota_give(&worker->grantee, import->bytes);
    *import = sharing->imports[--sharing->nr_imports];
    return result;
}

CUresult fgw_serve_ipc_close(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_ipc_close *fixed = request->fixed;
    struct fgw_sharing *sharing = &worker->calls->sharing;
    (void)reply;
    for (uint32_t i = 0; i < sharing->nr_imports; i++) {
        if (sharing->imports[i].address == fixed->address) {
            return close_import(worker, &sharing->imports[i]);
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

void fgw_sharing_drop_context(struct fgw_worker *worker, const struct fgw_context *context)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    for (uint32_t i = sharing->nr_imports; i-- > 0;) {
        if (!context || sharing->imports[i].context == context) {
            close_import(worker, &sharing->imports[i]);
        }
    }
}
