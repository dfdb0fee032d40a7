/*
 * What the driver takes of the device beside what a client allocates, counted against the vGPU's quota as that is.
 *
 * It is computed, and not measured: free memory of the device before and after a call tells what all processes did
 * meanwhile, and a lock over all of their calls could be kept by a worker that its guest took over. What is computed is
 * given back to the byte, and the same program has the same counted on every run. The daemon weighs a context and a
 * stream once, when nobody else computes (scale.c); the rest follows from what the guest asks for:
 *
 *   a context   as weighed; the primary one from the moment that the worker has a client, as it is warm by then
 *   a stream    as weighed
 *   a module    its code and its variables (needs.py), times the contexts for a library, which the driver may load into
 *               each of them; from the load on, also where the driver waits for the first use. A variant that the
 *               worker makes of a kernel counts by its text
 *   limits      stack, or the most that a kernel which ran there has of local memory, for all threads that the device
 *               may have at once; heap and printf's buffer as asked for. The cost of a context covers what they are
 *               when it is made
 *
 * Wrong when: a driver takes memory for something that is not on this list. What it does for launches from kernels
 * (nested ones) is nowhere computed, so their limits may not grow under a quota: calls/limits.c.
 */
#include "client/taken.h"

#include "base/count.h"
#include "page/account.h"
#include "page/layout.h"
#include "page/room.h"

void fgw_worker_set_costs(struct fgw_worker *worker, uint64_t context_bytes, uint64_t stream_bytes)
{
    worker->costs.context_bytes = context_bytes;
    worker->costs.stream_bytes = stream_bytes;
}

static _Atomic uint64_t *counter(struct fgw_worker_slot *slot, enum fgw_taken_for what)
{
    switch (what) {
    case FGW_FOR_CONTEXTS:
        return &slot->contexts_bytes;
    case FGW_FOR_STREAMS:
        return &slot->streams_bytes;
    case FGW_FOR_MODULES:
        return &slot->modules_bytes;
    default:
        return &slot->limits_bytes;
    }
}

bool fgw_taken_take(struct fgw_worker *worker, enum fgw_taken_for what, uint64_t bytes)
{
    if (!fgw_quota_take(&worker->grantee, bytes)) {
        return false;
    }
    fgw_count(counter(worker->slot, what), bytes);
    fgw_room_fix(&worker->grantee, bytes);
    return true;
}

void fgw_taken_give(struct fgw_worker *worker, enum fgw_taken_for what, uint64_t bytes)
{
    fgw_count(counter(worker->slot, what), 0 - bytes);
    fgw_room_unfix(&worker->grantee, bytes);
    fgw_quota_give(&worker->grantee, bytes);
}

bool fgw_taken_change(struct fgw_worker *worker, enum fgw_taken_for what, uint64_t *counted_bytes, uint64_t due_bytes)
{
    if (due_bytes < *counted_bytes) {
        fgw_taken_give(worker, what, *counted_bytes - due_bytes);
    } else if (due_bytes > *counted_bytes && !fgw_taken_take(worker, what, due_bytes - *counted_bytes)) {
        return false;
    }
    *counted_bytes = due_bytes;
    return true;
}

/* ---- contexts ---- */

bool fgw_taken_primary(struct fgw_worker *worker)
{
    if (worker->slot && !worker->costs.is_primary_counted) {
        worker->costs.is_primary_counted = fgw_taken_take(worker, FGW_FOR_CONTEXTS, worker->costs.context_bytes);
    }
    return !worker->slot || worker->costs.is_primary_counted; /* a warm worker is nobody's yet */
}

void fgw_taken_primary_gone(struct fgw_worker *worker)
{
    if (worker->costs.is_primary_counted) {
        worker->costs.is_primary_counted = false;
        fgw_taken_give(worker, FGW_FOR_CONTEXTS, worker->costs.context_bytes);
    }
}

/* ---- limits ---- */

/* Threads that the device may have at once: the driver keeps local memory for all of them. */
static uint64_t nr_threads(const struct fgw_worker *worker)
{
    int nr_multiprocessors = 0, nr_threads_each = 0;
    worker->driver.cuDeviceGetAttribute(&nr_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, worker->device);
    worker->driver.cuDeviceGetAttribute(&nr_threads_each, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                        worker->device);
    return (uint64_t)nr_multiprocessors * (uint64_t)nr_threads_each;
}

static uint64_t beyond(uint64_t bytes, uint64_t first_bytes)
{
    return bytes > first_bytes ? bytes - first_bytes : 0;
}

/* False: it is more than any device has. */
static bool add_up(struct fgw_worker *worker, const struct fgw_taken_limits *limits, uint64_t *due_bytes)
{
    const uint64_t *now = limits->now, *first = limits->first;
    const uint64_t stack_bytes =
        now[CU_LIMIT_STACK_SIZE] > limits->local_bytes ? now[CU_LIMIT_STACK_SIZE] : limits->local_bytes;
    const uint64_t stack_more_bytes = beyond(stack_bytes, first[CU_LIMIT_STACK_SIZE]);
    *due_bytes = 0;
    if (stack_more_bytes != 0 && __builtin_mul_overflow(stack_more_bytes, nr_threads(worker), due_bytes)) {
        return false;
    }
    for (int i = CU_LIMIT_PRINTF_FIFO_SIZE; i < FGW_NR_TAKEN_LIMITS; i++) {
        if (__builtin_add_overflow(*due_bytes, beyond(now[i], first[i]), due_bytes)) {
            return false;
        }
    }
    return *due_bytes <= UINT64_MAX / 2;
}

void fgw_taken_note_limits(struct fgw_worker *worker, struct fgw_context *context)
{
    struct fgw_taken_limits *limits = &context->limits;
    for (int i = 0; i < FGW_NR_TAKEN_LIMITS; i++) {
        size_t value = 0;
        if (worker->driver.cuCtxGetLimit && worker->driver.cuCtxGetLimit(&value, (CUlimit)i) == CUDA_SUCCESS) {
            limits->first[i] = limits->now[i] = value;
        }
    }
}

static CUresult change(struct fgw_worker *worker, struct fgw_context *context, const struct fgw_taken_limits *to)
{
    uint64_t due_bytes;
    if (!add_up(worker, to, &due_bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fgw_taken_change(worker, FGW_FOR_LIMITS, &context->limits.counted_bytes, due_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->limits = *to;
    context->limits.counted_bytes = due_bytes;
    return CUDA_SUCCESS;
}

CUresult fgw_taken_limit(struct fgw_worker *worker, struct fgw_context *context, CUlimit limit, uint64_t value)
{
    struct fgw_taken_limits to = context->limits;
    to.now[limit] = value;
    return change(worker, context, &to);
}

CUresult fgw_taken_local(struct fgw_worker *worker, uint64_t local_bytes)
{
    struct fgw_context *context = worker->current;
    if (!context || local_bytes <= context->limits.local_bytes) {
        return CUDA_SUCCESS;
    }
    struct fgw_taken_limits to = context->limits;
    to.local_bytes = local_bytes;
    return change(worker, context, &to);
}

void fgw_taken_limits_gone(struct fgw_worker *worker, struct fgw_context *context)
{
    fgw_taken_give(worker, FGW_FOR_LIMITS, context->limits.counted_bytes);
    context->limits.counted_bytes = 0;
}
