/* See exports.h. Entries lie in no order: there are few, and they are looked at when a program shares or frees memory.
 */
#include "calls/exports.h"

#include <sys/random.h>

#include "client/daemon.h"
#include "page/bell.h"
#include "page/shares.h"

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

static const struct fgw_export *find(const struct fgw_worker *worker, uint64_t name)
{
    const struct fgw_sharing *sharing = &worker->calls->sharing;
    for (uint32_t i = 0; i < sharing->nr_exports; i++) {
        if (!sharing->exports[i].is_gone && sharing->exports[i].name == name) {
            return &sharing->exports[i];
        }
    }
    return NULL;
}

bool fgw_exports_find(const struct fgw_worker *worker, uint64_t name, struct fgw_key *key)
{
    const struct fgw_export *found = find(worker, name);
    if (found) {
        *key = found->key;
    }
    return found;
}

CUresult fgw_exports_begin(struct fgw_worker *worker)
{
    fgw_exports_settle(worker);
    if (worker->calls->sharing.nr_exports == FGW_MAX_EXPORTS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return fgw_exports_may_ask(worker) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult fgw_exports_put(struct fgw_worker *worker, uint64_t name, uint64_t bytes, const int *files, uint32_t nr_files,
                         struct fgw_key *key)
{
    struct fgw_sharing *sharing = &worker->calls->sharing;
    if (getrandom(key, sizeof(*key), 0) != sizeof(*key)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    const struct fgw_shelf_message message = {.word = FGW_SHELF_PUT, .key = *key, .bytes = bytes};
    const CUresult result = fgw_daemon_tell(worker, &message, files, nr_files);
    if (result == CUDA_SUCCESS) {
        sharing->exports[sharing->nr_exports++] = (struct fgw_export){.name = name, .key = *key};
        fgw_share_join(&worker->grantee, key->words[0], bytes);
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

void fgw_exports_forget(struct fgw_worker *worker, uint64_t name)
{
    const struct fgw_export *found = find(worker, name);
    if (found) {
        fgw_share_leave(&worker->grantee, found->key.words[0]);
        worker->calls->sharing.exports[found - worker->calls->sharing.exports].is_gone = true;
        fgw_exports_settle(worker);
    }
}
