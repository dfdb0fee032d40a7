/*
 * Contexts as records, which of them is current to a thread, and the doors into the driver that find it. A thread's
 * stack of contexts holds references: a context that another thread destroyed stays a record that says so
 * (CUDA_ERROR_CONTEXT_IS_DESTROYED) for as long as some thread still names it.
 */
#include "device/current.h"

#include <stdlib.h>
#include <string.h>

#include "base/state.h"
#include "cuda_api/prototypes.h"

#define MAX_DEPTH 256
#define LOOK_NS   100000u /* between two looks for failures, each of which may cost 1 us, three launches' time */

struct thread_contexts {
    uint32_t depth;
    uint32_t max_depth;
    struct CUctx_st **stack;
};

struct CUctx_st *sgp_contexts;
static __thread struct thread_contexts own;
static pthread_key_t own_key;
static pthread_once_t own_key_once = PTHREAD_ONCE_INIT;

static void thread_ended(void *value)
{
    struct thread_contexts *contexts = value;

    if (sgp_driver.is_forked) {
        return;
    }
    sgp_lock();
    for (uint32_t i = 0; i < contexts->depth; i++) {
        if (contexts->stack[i]) {
            sgp_object_release(contexts->stack[i]);
        }
    }
    sgp_unlock();
    free(contexts->stack);
    memset(contexts, 0, sizeof(*contexts));
}

static void make_own_key(void)
{
    if (pthread_key_create(&own_key, thread_ended)) {
        abort();
    }
}

struct CUctx_st *sgp_context_current(void)
{
    return own.depth ? own.stack[own.depth - 1] : NULL;
}

CUresult sgp_context_push(struct CUctx_st *context)
{
    pthread_once(&own_key_once, make_own_key);
    if (own.depth == own.max_depth) {
        uint32_t grown = own.max_depth ? 2 * own.max_depth : 4;
        struct CUctx_st **stack;

        if (grown > MAX_DEPTH) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        stack = realloc(own.stack, grown * sizeof(*stack));
        if (!stack) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        own.stack = stack;
        own.max_depth = grown;
        pthread_setspecific(own_key, &own);
    }
    if (context) {
        sgp_object_keep(context);
    }
    own.stack[own.depth++] = context;
    return CUDA_SUCCESS;
}

void sgp_context_pop(void)
{
    struct CUctx_st *context = own.stack[--own.depth];

    if (context) {
        sgp_object_release(context);
    }
}

/* On an error the lock is given back. */
static CUresult check_there(const struct CUctx_st *context)
{
    if (!context) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    return context->is_active ? CUDA_SUCCESS : sgp_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static CUresult check_healthy(const struct CUctx_st *context)
{
    CUresult result = check_there(context);

    return !result && context->error ? sgp_leave(context->error) : result;
}

CUresult sgp_enter_unchecked(struct CUctx_st **context)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    *context = sgp_context_current();
    return check_there(*context);
}

CUresult sgp_enter(struct CUctx_st **context)
{
    CUresult result = sgp_enter_unchecked(context);

    return result ? result : check_healthy(*context);
}

CUresult sgp_enter_by(const void *handle, struct CUctx_st **context)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    *context = sgp_context_current();
    if (!*context) {
        *context = sgp_object_context(handle);
    }
    return check_healthy(*context);
}

static void context_destroy(void *object)
{
    free(object);
}

struct CUctx_st *sgp_context_new(struct sgp_device *device)
{
    struct CUctx_st *context = calloc(1, sizeof(*context));

    if (!context) {
        return NULL;
    }
    if (!sgp_object_add(context, SGP_CONTEXT, context_destroy)) {
        free(context);
        return NULL;
    }
    context->device = device;
    context->next = sgp_contexts;
    sgp_contexts = context;
    return context;
}

struct CUctx_st *sgp_context_primary(struct sgp_device *device)
{
    if (!device->primary) {
        device->primary = sgp_context_new(device);
        if (device->primary) {
            device->primary->is_primary = true;
        }
    }
    return device->primary;
}

void sgp_device_fail(struct sgp_device *device, CUresult fault)
{
    if (device->fault) {
        return;
    }
    device->fault = fault;
    for (struct CUctx_st *context = sgp_contexts; context; context = context->next) {
        if (context->device == device) {
            context->error = fault;
        }
    }
}

void sgp_device_find_failures(void)
{
    static uint64_t next_look_ns;
    const uint64_t now_ns = sgp_now_ns();

    if (now_ns < next_look_ns) {
        return;
    }
    next_look_ns = now_ns + LOOK_NS;
    for (struct CUctx_st *context = sgp_contexts; context; context = context->next) {
        CUresult failure = context->is_active && !context->error ? sgp_state_failure(context->device->state) : 0;

        if (failure) {
            sgp_device_fail(context->device, failure);
        }
    }
}

SGP_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!sgp_object_is(ctx, SGP_CONTEXT)) {
        return sgp_leave(ctx ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE);
    }
    return sgp_leave(sgp_context_push(ctx));
}

SGP_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!own.depth) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (pctx) {
        *pctx = sgp_context_current();
    }
    sgp_context_pop();
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (ctx && !sgp_object_is(ctx, SGP_CONTEXT)) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (own.depth) {
        sgp_context_pop();
    }
    return sgp_leave(ctx ? sgp_context_push(ctx) : CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult result = sgp_with_argument(sgp_enter_driver(), pctx);

    if (result) {
        return result;
    }
    *pctx = sgp_context_current();
    return sgp_leave(CUDA_SUCCESS);
}
