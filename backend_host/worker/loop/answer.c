/*
 * The end of a request: its result and reply go to who waits for them, and errors of what nobody waited for are kept
 * for who waits next.
 */
#include "loop/answer.h"

#include "base/count.h"
#include "base/sticky.h"
#include "calls/context.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "page/layout.h"
#include "track/sync.h"

/* Whether it is the current context that has failed: a call may have told of another one, which it named. */
static bool is_broken(struct fgw_worker *worker)
{
    return worker->driver.cuStreamQuery && fgw_is_sticky(worker->driver.cuStreamQuery(NULL));
}

/* Whether every later call in this context tells of the error by itself; one in another context must not. */
static bool is_of_a_fault(const struct fgw_worker *worker, CUresult result)
{
    return worker->current && worker->current->fault == result;
}

void fgw_note_fault(struct fgw_worker *worker, CUresult result)
{
    if (fgw_is_sticky(result) && worker->current && worker->current->fault == CUDA_SUCCESS && is_broken(worker)) {
        fgw_sync_fault(worker, worker->current, result);
    }
}

static bool is_synchronisation(uint16_t call)
{
    return call == FGV_CALL_cuCtxSynchronize || call == FGV_CALL_cuCtxSynchronize_v2 ||
           call == FGV_CALL_cuStreamSynchronize || call == FGV_CALL_cuEventSynchronize;
}

/* Of a launch that nobody waited for. Exchanged only when there is one: every call of the guest reads its cache line,
 * which an exchange would take away from it, before the answer and for its next call. */
static CUresult take_deferred(struct fgw_worker *worker)
{
    _Atomic uint32_t *error = &worker->client->deferred_error;
    return atomic_load_explicit(error, memory_order_relaxed) == 0
               ? CUDA_SUCCESS
               : (CUresult)atomic_exchange_explicit(error, 0, memory_order_relaxed);
}

void fgw_answer(struct fgw_worker *worker, const struct fgw_service *service, uint16_t response, CUresult result,
                const void *reply)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        atomic_store_explicit(&worker->slot->last_error, (uint32_t)result, memory_order_relaxed);
        fgw_note_fault(worker, result);
    }
    if (response != FGV_NO_RESPONSE) {
        if (result == CUDA_SUCCESS && service && is_synchronisation(service->number)) {
            /* Who waited for a launch learns what became of it, and not only who calls next. */
            result = take_deferred(worker);
        }
        uint32_t reply_bytes = result == CUDA_SUCCESS && reply && service ? service->reply_bytes : 0;
        fgw_count(&worker->slot->nr_round_trips, 1);
        if (!fgv_respond(&worker->region, &worker->layout, response, (uint32_t)result, reply, reply_bytes)) {
            fgw_count(&worker->slot->nr_refused, 1);
        }
    } else if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && !is_of_a_fault(worker, result)) {
        uint32_t none = 0;
        atomic_compare_exchange_strong(&worker->client->deferred_error, &none, (uint32_t)result);
    }
}

void fgw_refuse(struct fgw_worker *worker, uint16_t response, CUresult result)
{
    fgw_count(&worker->slot->nr_refused, 1);
    fgw_answer(worker, NULL, response, result, NULL);
}

/* Who releases its primary context, at its end mostly, does not stand by while the driver takes it down, which takes
 * that 70 to 130 ms (an H200). Nothing runs there any more, and what kernels printed is out. */
uint16_t fgw_answer_first(struct fgw_worker *worker, const struct fgw_service *service,
                          const struct fgw_request *request, uint16_t response)
{
    if (service->number != FGV_CALL_context_destroy || !fgw_context_is_released(worker, request)) {
        return response;
    }
    if (fgw_may_print()) {
        fgw_printing_check(worker);
    }
    fgw_answer(worker, service, response, CUDA_SUCCESS, NULL);
    return FGV_NO_RESPONSE;
}
