/*
 * Contexts. Which one is current is the thread's affair and known here alone; the worker learns of a context when a
 * call needs it there, and every request carries the number of the one that was current.
 *
 * The object behind a context is never freed, only used again for another one: threads keep pointers to the one that is
 * current, and find out by comparing handles that it was destroyed meanwhile.
 */
#ifndef FRONTEND_GUEST_CONTEXT_H
#define FRONTEND_GUEST_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/facts.h"
#include "cuda_api/types.h"

struct fgv_context {
    _Atomic uint64_t handle;      /* 0: destroyed */
    _Atomic uint32_t is_made;     /* the worker has it */
    _Atomic uint32_t nr_retained; /* a primary context, by the program: a reset leaves it as it is */
    _Atomic uint32_t is_active;   /* a primary context: retained since it was last reset; others: always */
    uint32_t ordinal;             /* of the device, as the program counts */
    bool is_primary;
    uint32_t flags;
    uint64_t id;
    CUfunc_cache cache_config;
    _Atomic uint32_t limits_known; /* one bit for each CUlimit */
    size_t limits[FGV_FACTS_NR_LIMITS];
    pthread_mutex_t lock; /* making and destroying it on the worker */
    struct fgv_context *next_free;
};

static inline bool fgv_context_is_ready(const struct fgv_context *context, uint64_t handle)
{
    /* acquire: with the release when it was made */
    return context && atomic_load_explicit(&context->handle, memory_order_relaxed) == handle &&
           atomic_load_explicit(&context->is_made, memory_order_acquire) != 0;
}

/* CUDA_ERROR_INVALID_CONTEXT for none, CUDA_ERROR_CONTEXT_IS_DESTROYED for one that is gone or a primary one that
 * nobody retained since it was reset. */
CUresult fgv_context_usable(const struct fgv_context *context, uint64_t handle);
/* Whether a context may be made with these flags: known ones, and one way to wait. */
bool fgv_context_flags_are_sound(unsigned int flags);
/* Makes it on the worker if it is not there yet. */
CUresult fgv_context_make(struct fgv_context *context, uint64_t handle);
/* The object of a handle; NULL: the current one. NULL when bad. */
struct fgv_context *fgv_context_find(CUcontext context);
/* The current context of the calling thread: CUDA_SUCCESS and its object, or the error that a call without one gives.
 */
CUresult fgv_context_current(struct fgv_context **context);
/* The primary context of a device, by ordinal. Not made, not retained. */
CUresult fgv_context_primary(uint32_t ordinal, struct fgv_context **context);

static inline CUcontext fgv_context_public(uint64_t handle)
{
    return (CUcontext)(uintptr_t)handle;
}
static inline uint64_t fgv_context_handle(struct fgv_context *context)
{
    return atomic_load_explicit(&context->handle, memory_order_relaxed);
}

#endif
