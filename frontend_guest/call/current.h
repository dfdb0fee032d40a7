/*
 * A context as every call sees it: what hangs on the number of the one that is current. How contexts come and go is in
 * context.c.
 *
 * The object behind a context is never freed, only used again for another one: threads keep pointers to the one that is
 * current, and find out by comparing handles that it was destroyed meanwhile.
 */
#ifndef FRONTEND_GUEST_CURRENT_H
#define FRONTEND_GUEST_CURRENT_H

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
    _Atomic uint64_t yield_word; /* its address, 0: there is none (memory/yield.c) */
    pthread_mutex_t lock;        /* making and destroying it on the worker */
    struct fgv_context *next_free;
};

static inline CUcontext fgv_context_public(uint64_t handle)
{
    return (CUcontext)(uintptr_t)handle;
}
static inline uint64_t fgv_context_handle(struct fgv_context *context)
{
    return atomic_load_explicit(&context->handle, memory_order_relaxed);
}

static inline bool fgv_context_is_ready(const struct fgv_context *context, uint64_t handle)
{
    /* acquire: with the release when it was made */
    return context && atomic_load_explicit(&context->handle, memory_order_relaxed) == handle &&
           atomic_load_explicit(&context->is_made, memory_order_acquire) != 0;
}

/* CUDA_ERROR_INVALID_CONTEXT for none, CUDA_ERROR_CONTEXT_IS_DESTROYED for one that is gone or a primary one that
 * nobody retained since it was reset. */
static inline CUresult fgv_context_usable(const struct fgv_context *context, uint64_t handle)
{
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return atomic_load_explicit(&context->handle, memory_order_relaxed) == handle &&
                   atomic_load_explicit(&context->is_active, memory_order_relaxed) != 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

#endif
