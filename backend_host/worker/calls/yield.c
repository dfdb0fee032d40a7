/* The word by which kernels of a context are asked to give way: whose memory it lies in. What is written there, and
 * when, is turn/yield.c. */
#include "turn/yield.h"

#include "base/count.h"
#include "calls/state.h"
#include "client/ranges.h"
#include "client/service.h"
#include "client/state.h"

#define WORD_BYTES sizeof(uint32_t)

/* Memory that was allocated in the current context, or that the client mapped, which is of no context. */
static bool is_own(struct fgw_worker *worker, uint64_t address)
{
    const struct fgw_range *allocated = fgw_ranges_around(&worker->calls->allocated, address, WORD_BYTES);
    return (allocated && allocated->context == worker->current) ||
           fgw_ranges_around(&worker->calls->mapped, address, WORD_BYTES);
}

CUresult fgw_serve_yield_attach(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_yield_attach *fixed = request->fixed;
    (void)reply;
    if (!worker->driver.cuStreamWriteValue32_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (fixed->word % WORD_BYTES != 0 || !is_own(worker, fixed->word)) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fgw_yield_attach(worker, worker->current, fixed->word);
    return CUDA_SUCCESS;
}

CUresult fgw_serve_yield_detach(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_yield_detach *fixed = request->fixed;
    (void)reply;
    fgw_yield_detach(worker, worker->current, fixed->address, fixed->bytes);
    return CUDA_SUCCESS;
}
