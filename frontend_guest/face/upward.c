/*
 * What lower files have done by higher ones. A file knows nothing of what stands above it (tests/floors.toml): where
 * something from there is due it calls through a pointer of its own, and all of these are filled here.
 *
 * They are set before main and before any constructor that may make a call, by one thread, and never change. A forked
 * child has them as its parent does.
 *
 * Wrong when: a library that is loaded before this one makes calls while it is initialised.
 */
#include "base/thread.h"
#include "call/call.h"
#include "call/output.h"
#include "code/module.h"
#include "code/timeline.h"
#include "context/context.h"
#include "context/event.h"
#include "context/pool_cache.h"
#include "context/stream.h"
#include "managed/allocate.h"
#include "managed/granules.h"
#include "managed/said.h"
#include "memory/array.h"
#include "memory/memory.h"
#include "memory/ranges.h"
#include "memory/sharing.h"
#include "memory/slabs.h"
#include "memory/texture.h"
#include "region/client.h"

/* The stream first: to destroy it takes a call, and that the thread's response slot. */
static void thread_ends(void)
{
    if (fgv_client_is_open() == CUDA_SUCCESS) {
        fgv_stream_thread_ends();
        fgv_call_thread_ends();
    }
}

static const struct fgv_call_ops call_ops = {
    .context_make = fgv_context_make,
    .output_print = fgv_output_print,
    .before = fgv_granules_before,
};

static void context_forget(struct fgv_context *context)
{
    fgv_stream_forget_context(context);
    fgv_event_forget_context(context);
    fgv_module_forget_context(context);
    fgv_memory_forget_context(context);
    fgv_slab_forget_context(context);
    fgv_sharing_forget_context(context);
    fgv_array_forget_context(context);
    fgv_texture_forget_context(context);
    fgv_pool_cache_forget_context(fgv_context_handle(context));
}

static void context_release(const struct fgv_context *context)
{
    fgv_timeline_end_context(context);
    fgv_memory_release_shared(context);
    fgv_managed_release(context);
}

static const struct fgv_memory_ops memory_ops = {
    .managed_free = fgv_managed_free,
    .managed_forget = fgv_said_forget,
};

static const struct fgv_context_ops context_ops = {
    .release = context_release,
    .forget = context_forget,
};

__attribute__((constructor(101))) static void fill(void)
{
    fgv_thread_ends = thread_ends;
    fgv_call_ops = &call_ops;
    fgv_context_ops = &context_ops;
    fgv_memory_ops = &memory_ops;
}
