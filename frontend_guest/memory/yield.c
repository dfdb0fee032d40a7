/*
 * Attaching the word by which kernels are asked to give way. These two are no calls of CUDA's, so no table has them:
 * a program finds them by dlsym, and whoever traces sees them by their names.
 *
 * The worker checks the address too, and detaches a word whose memory it frees. What it cannot see is memory that is
 * used again here: cut out of a slab, or kept for its stream.
 */
#include "memory/yield.h"

#include "base/thread.h"
#include "base/trace.h"
#include "call/call.h"
#include "call/current.h"
#include "frontend_guest/include/fairgv.h"
#include "memory/ranges.h"

#define WORD_BYTES sizeof(uint32_t)

/* From a request until its word is noted: both ends know the same word as the last one. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

/* Device memory of the current context, or that the program mapped, which is of no context. */
static bool is_own(CUdeviceptr word)
{
    struct fgv_range range;
    if (word % WORD_BYTES != 0 || !fgv_memory_find(word, &range) || range.bytes - (word - range.address) < WORD_BYTES) {
        return false;
    }
    return range.kind == FGV_MEMORY_MAPPED || ((range.kind == FGV_MEMORY_DEVICE || range.kind == FGV_MEMORY_POOLED) &&
                                               range.context_handle == fgv_thread.current);
}

static CUresult send_attach(CUdeviceptr word)
{
    struct fgv_call call;
    struct fgv_request_yield_attach *request = fgv_call_begin(&call, FGV_CALL_yield_attach, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->word = word;
    return fgv_call_wait(&call, NULL, 0);
}

static CUresult attach(CUdeviceptr word)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_own(word)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&order);
    result = send_attach(word);
    if (result == CUDA_SUCCESS) {
        atomic_store_explicit(&fgv_thread.context->yield_word, word, memory_order_relaxed);
    }
    pthread_mutex_unlock(&order);
    return result;
}

static CUresult send_detach(uint64_t context, uint64_t address, uint64_t bytes)
{
    struct fgv_call call;
    struct fgv_request_yield_detach *request =
        fgv_call_begin_for(&call, FGV_CALL_yield_detach, sizeof(*request), 0, context);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_yield_detach){.address = address, .bytes = bytes};
    return fgv_call_wait(&call, NULL, 0);
}

static CUresult detach(void)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&order);
    if (atomic_exchange(&fgv_thread.context->yield_word, 0) != 0) {
        result = send_detach(fgv_thread.current, 0, UINT64_MAX);
    }
    pthread_mutex_unlock(&order);
    return result;
}

CUresult fairgv_yield_attach(CUdeviceptr word)
{
    struct fgv_traced traced;
    if (!fgv_tracing) {
        return attach(word);
    }
    fgv_trace_begin(&traced);
    const CUresult result = attach(word);
    fgv_trace_end_named(&traced, __func__, result);
    return result;
}

CUresult fairgv_yield_detach(void)
{
    struct fgv_traced traced;
    if (!fgv_tracing) {
        return detach();
    }
    fgv_trace_begin(&traced);
    const CUresult result = detach();
    fgv_trace_end_named(&traced, __func__, result);
    return result;
}

void fgv_yield_forget(const struct fgv_range *range)
{
    uint64_t word = atomic_load_explicit(&range->context->yield_word, memory_order_relaxed);
    if (word - range->address < range->bytes && atomic_compare_exchange_strong(&range->context->yield_word, &word, 0)) {
        send_detach(range->context_handle, range->address, range->bytes);
    }
}
