/*
 * Memory of modules and libraries under the vGPU's quota. A module lies in one context. A library is loaded into each
 * context that uses it, whenever that begins to, and no driver tells: it counts once for each context there is, and
 * once while there is none.
 *
 * Wrong when: a program makes many contexts and uses its libraries in one of them. They count for all.
 */
#include "calls/image_memory.h"

#include "calls/memory.h"
#include "calls/state.h"
#include "client/current.h"
#include "client/taken.h"
#include "page/account.h"

void fgw_worker_set_needs(struct fgw_worker *worker, fgw_needs_fn needs)
{
    worker->calls->image_memory.needs = needs;
}

uint64_t fgw_image_needs(struct fgw_worker *worker, const void *image, uint64_t image_bytes)
{
    uint64_t quota_bytes;
    fgw_quota_used(&worker->grantee, &quota_bytes);
    const fgw_needs_fn needs = worker->calls->image_memory.needs;
    return needs ? needs(image, image_bytes, fgw_capability_of(worker), quota_bytes != 0) : image_bytes;
}

static bool settle(struct fgw_worker *worker, const struct fgw_image_memory *to, uint32_t nr_contexts)
{
    struct fgw_image_memory *memory = &worker->calls->image_memory;
    uint64_t due_bytes;
    if (__builtin_mul_overflow(to->library_bytes, (uint64_t)(nr_contexts > 0 ? nr_contexts : 1), &due_bytes) ||
        __builtin_add_overflow(to->module_bytes, due_bytes, &due_bytes) ||
        !fgw_taken_change(worker, FGW_FOR_MODULES, &memory->counted_bytes, due_bytes)) {
        return false;
    }
    memory->module_bytes = to->module_bytes;
    memory->library_bytes = to->library_bytes;
    return true;
}

bool fgw_image_memory_settle(struct fgw_worker *worker, uint32_t nr_contexts)
{
    return settle(worker, &worker->calls->image_memory, nr_contexts);
}

/* With so much more, or less, of what counts for images of this kind. */
static bool change(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t more_bytes)
{
    struct fgw_image_memory to = worker->calls->image_memory;
    *(kind == FGV_HANDLE_LIBRARY ? &to.library_bytes : &to.module_bytes) += more_bytes;
    return settle(worker, &to, fgw_context_count(worker));
}

bool fgw_image_memory_take(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t needs_bytes)
{
    if (needs_bytes > UINT64_MAX / 4 || !fgw_limit_take(&worker->grantee, FGW_LIMITED_MODULES, 1)) {
        return false;
    }
    if (change(worker, kind, needs_bytes)) {
        return true;
    }
    fgw_memory_trim(worker);
    if (change(worker, kind, needs_bytes)) {
        return true;
    }
    fgw_limit_give(&worker->grantee, FGW_LIMITED_MODULES, 1);
    return false;
}

void fgw_image_memory_give(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t needs_bytes)
{
    change(worker, kind, 0 - needs_bytes);
    fgw_limit_give(&worker->grantee, FGW_LIMITED_MODULES, 1);
}
