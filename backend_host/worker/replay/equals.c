/*
 * See equals.h. The worker that is none has a page of its own, on which nobody is counted.
 *
 * Wrong when: a driver takes so much memory for a second set of objects that the device's own programs find none.
 */
#include "replay/equals.h"

#include <stdio.h>
#include <stdlib.h>

#include "calls/image.h"
#include "calls/kept_image.h"
#include "calls/kinds.h"
#include "calls/state.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "page/grant.h"
#include "page/layout.h"
#include "page/sets.h"
#include "parts/state.h"
#include "track/state.h"
#include "turn/state.h"

struct fgw_equals {
    struct fgw_worker worker;
    struct fgw_track track;
    struct fgw_turn turn;
    struct fgw_slicing slicing;
    struct fgw_calls calls;
    struct fgw_control control;
    struct fgw_decided decided;
    struct fgw_grant grant;
    struct fgw_own own;
    char why[160];
};

static bool build(struct fgw_equals *equals)
{
    struct fgw_worker *nobody = &equals->worker;
    equals->control = (struct fgw_control){.decided = &equals->decided,
                                           .shared = &equals->grant,
                                           .accounts = {&equals->own.account},
                                           .own = {&equals->own},
                                           .lives = -1,
                                           .life = -1};
    atomic_store(&equals->control.grant, &equals->grant);
    atomic_store(&equals->decided.vgpus[0].is_used, 1);
    fgw_set_add(&equals->decided.vgpus[0].members, 0);
    nobody->track = &equals->track;
    nobody->turn = &equals->turn;
    nobody->slicing = &equals->slicing;
    nobody->calls = &equals->calls;
    nobody->slot = &equals->own.workers[0];
    equals->calls.is_pinned = true; /* by the client's worker */
    fgw_kept_image_limit(nobody, UINT64_MAX);
    return fgw_handles_init(nobody, fgw_kinds) && fgw_grantee_attach(&nobody->grantee, &equals->control, 0, 0);
}

struct fgw_equals *fgw_equals_new(const struct fgw_worker *worker, const struct fgv_driver *driver, CUdevice device)
{
    struct fgw_equals *equals = calloc(1, sizeof(*equals));
    if (!equals || !build(equals)) {
        free(equals);
        return NULL;
    }
    equals->worker.driver = *driver;
    equals->worker.device = device;
    equals->worker.region = worker->region;
    equals->worker.layout = worker->layout;
    return equals;
}

CUcontext fgw_equals_context(const struct fgw_equals *equals)
{
    const struct fgw_context *context = fgw_context_any(&equals->worker);
    return context ? context->native : equals->worker.warm;
}

static const char *in_words(struct fgw_equals *equals, const struct fgw_trouble *trouble)
{
    const char *kind =
        trouble->kind < FGW_NR_KINDS && fgw_kinds[trouble->kind].name ? fgw_kinds[trouble->kind].name : "object";
    snprintf(equals->why, sizeof(equals->why), "%s %llx: %s (CUDA error %d)", kind, (unsigned long long)trouble->number,
             trouble->why, (int)trouble->result);
    return equals->why;
}

/* A driver may load a function when it is launched first. */
static void load_functions(struct fgw_equals *equals)
{
    struct fgw_worker *nobody = &equals->worker;
    struct fgw_handle handle;
    CUfunction function;
    for (uint32_t at = 0; nobody->driver.cuFuncLoad && fgw_handle_next(nobody, FGV_HANDLE_FUNCTION, &at, &handle);) {
        nobody->driver.cuFuncLoad(handle.native);
    }
    for (uint32_t at = 0; nobody->driver.cuFuncLoad && nobody->driver.cuKernelGetFunction &&
                          fgw_handle_next(nobody, FGV_HANDLE_KERNEL, &at, &handle);) {
        if (nobody->driver.cuKernelGetFunction(&function, handle.native) == CUDA_SUCCESS) {
            nobody->driver.cuFuncLoad(function);
        }
    }
}

const char *fgw_equals_make(struct fgw_equals *equals, const struct fgw_saver *saved)
{
    struct fgw_worker *nobody = &equals->worker;
    struct fgw_trouble trouble = {0};
    fgw_context_none_is_current(nobody);
    if (!fgw_objects_restore(nobody, saved->bytes, saved->nr, NULL, &trouble)) {
        return in_words(equals, &trouble);
    }
    struct fgw_context *context = fgw_context_any(nobody);
    if (context) {
        fgw_context_make_current(nobody, context);
        load_functions(equals);
    } else if (fgw_context_warm(nobody) != CUDA_SUCCESS) {
        return "the other device gives no context";
    }
    return NULL;
}

const char *fgw_equals_follow(struct fgw_equals *equals, const struct fgw_saver *before, const struct fgw_saver *now)
{
    struct fgw_trouble trouble = {0};
    fgw_context_none_is_current(&equals->worker); /* another one may be in this thread */
    return fgw_objects_follow(&equals->worker, before, now, &trouble) ? NULL : in_words(equals, &trouble);
}

bool fgw_equals_exchange(struct fgw_equals *equals, struct fgw_worker *worker)
{
    struct fgw_worker *nobody = &equals->worker;
    if (!fgw_handles_exchange(worker, nobody, FGW_EQUALS_LEFT_OUT)) {
        return false;
    }
    fgw_contexts_exchange(worker, nobody);
    return true;
}

bool fgw_equals_variable(struct fgw_equals *equals, const struct fgw_told_variable *variable, uint64_t *address)
{
    struct fgw_worker *nobody = &equals->worker;
    struct fgw_context *context = fgw_context_find(nobody, variable->context);
    const struct fgw_handle owner = fgw_handle_find(nobody, variable->owner_kind, variable->owner);
    CUdeviceptr found;
    size_t bytes;
    context = context ? context : fgw_context_any(nobody);
    fgw_context_none_is_current(nobody); /* another one may be in this thread */
    if (owner.number == 0 || !context || fgw_context_make_current(nobody, context) != CUDA_SUCCESS ||
        fgw_variable_find(nobody, variable->owner_kind, owner.native, variable->name, &found, &bytes) != CUDA_SUCCESS) {
        return false;
    }
    *address = found;
    return bytes == variable->bytes;
}

CUevent fgw_equals_event(const struct fgw_equals *equals, uint64_t number)
{
    return fgw_handle_find((struct fgw_worker *)&equals->worker, FGV_HANDLE_EVENT, number).native;
}

/* Streams, events, modules and what is in them go with their contexts. */
static void drop_natives(struct fgw_worker *nobody)
{
    const struct fgv_driver *driver = &nobody->driver;
    struct fgw_handle library;
    driver->cuCtxSetCurrent(NULL);
    for (uint32_t at = 0; driver->cuLibraryUnload && fgw_handle_next(nobody, FGV_HANDLE_LIBRARY, &at, &library);) {
        driver->cuLibraryUnload(library.native);
    }
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        const struct fgw_context *context = nobody->contexts[i];
        if (context && context->is_primary) {
            driver->cuDevicePrimaryCtxRelease_v2(context->device);
        } else if (context) {
            driver->cuCtxDestroy_v2(context->native);
        }
    }
    if (nobody->warm) {
        driver->cuDevicePrimaryCtxRelease_v2(nobody->device);
    }
}

void fgw_equals_drop(struct fgw_equals *equals)
{
    if (!equals) {
        return;
    }
    struct fgw_worker *nobody = &equals->worker;
    drop_natives(nobody);
    fgw_handles_end(nobody);
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        free(nobody->contexts[i]);
    }
    fgw_blobs_free(nobody);
    free(equals);
}
