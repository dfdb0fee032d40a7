/* See exports.h. Entries lie in no order: there are few, and they are looked at when a program shares or frees memory.
 */
#include "calls/exports.h"

#include <string.h>
#include <sys/random.h>

#include "calls/extent_files.h"
#include "calls/span.h"
#include "client/daemon.h"
#include "page/bell.h"

#define ASK_EVERY_NS UINT64_C(1000000)

bool fgw_exports_may_ask(struct fgw_worker *worker)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    const uint64_t now_ns = fgw_clock_ns();
    if (now_ns - sharing->asked_ns < ASK_EVERY_NS) {
        return false;
    }
    sharing->asked_ns = now_ns;
    return true;
}

static struct fgw_export *find(struct fgw_worker *worker, uint64_t address)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    for (uint32_t i = 0; i < sharing->nr_exports; i++) {
        if (!sharing->exports[i].is_gone && sharing->exports[i].address == address) {
            return &sharing->exports[i];
        }
    }
    return NULL;
}

/* The descriptors go to the daemon; none stays here. */
static CUresult put(struct fgw_worker *worker, const struct fgw_range *allocation, const struct fgw_key *key)
{
    int files[FGW_MAX_SHARED_FILES];
    uint32_t nr_files;
    const struct fgw_shelf_message message = {
        .word = FGW_SHELF_PUT, .key = *key, .bytes = fgw_span_round(allocation->bytes)};
    CUresult result = fgw_extent_files_open(worker, allocation->address, message.bytes, files, &nr_files);
    if (result == CUDA_SUCCESS) {
        result = fgw_daemon_tell(worker, &message, files, nr_files);
        fgw_extent_files_close(files, nr_files);
    }
    return result;
}

CUresult fgw_exports_add(struct fgw_worker *worker, const struct fgw_range *allocation, struct fgw_key *key)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    const struct fgw_export *known = find(worker, allocation->address);
    if (known) {
        *key = known->key;
        return CUDA_SUCCESS;
    }
    fgw_exports_settle(worker);
    if (sharing->nr_exports == FGW_MAX_EXPORTS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!fgw_exports_may_ask(worker)) {
        return CUDA_ERROR_NOT_READY;
    }
    if (getrandom(key, sizeof(*key), 0) != sizeof(*key)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    const CUresult result = put(worker, allocation, key);
    if (result == CUDA_SUCCESS) {
        sharing->exports[sharing->nr_exports++] = (struct fgw_export){.address = allocation->address, .key = *key};
    }
    return result;
}

bool fgw_exports_have(const struct fgw_worker *worker, const struct fgw_key *key)
{
    const struct fgw_sharing *sharing = &worker->calls->sharing;
    for (uint32_t i = 0; i < sharing->nr_exports; i++) {
        if (!sharing->exports[i].is_gone && fgw_key_is(&sharing->exports[i].key, key)) {
            return true;
        }
    }
    return false;
}

void fgw_exports_settle(struct fgw_worker *worker)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    for (uint32_t i = sharing->nr_exports; i-- > 0;) {
        const struct fgw_shelf_message message = {.word = FGW_SHELF_DROP, .key = sharing->exports[i].key};
        if (sharing->exports[i].is_gone && fgw_daemon_tell(worker, &message, NULL, 0) != CUDA_ERROR_NOT_READY) {
            sharing->exports[i] = sharing->exports[--sharing->nr_exports];
        }
    }
}

void fgw_exports_forget(struct fgw_worker *worker, uint64_t address)
{
    struct fgw_export *export = find(worker, address);
    if (export) {
        export->is_gone = true;
        fgw_exports_settle(worker);
    }
}
