/*
 * An event, saved and made again: its flags. What was recorded is over by then, or it cannot be saved; the time between
 * two records is lost, and asking for it is answered as for events that were never recorded.
 *
 * Wrong when: a program records two events, is moved, and then asks for the time between them.
 */
#include "calls/stream.h"
#include "client/service.h"
#include "client/state.h"

struct saved_event {
    uint32_t flags;
    uint32_t reserved;
};

const char *fgw_event_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct saved_event saved = {.flags = handle->flags};
    if ((handle->flags & CU_EVENT_INTERPROCESS) != 0) {
        return "other processes may have it";
    }
    const CUresult result = worker->driver.cuEventQuery(handle->native);
    if (result != CUDA_SUCCESS && !(saver->is_at_work && result == CUDA_ERROR_NOT_READY)) {
        return result == CUDA_ERROR_CAPTURED_EVENT ? "a captured stream has it"
                                                   : "what it was recorded behind has not ended";
    }
    fgw_saver_put(saver, &saved, sizeof(saved));
    return NULL;
}

const char *fgw_event_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_event was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    const struct fgv_request_cuEventCreate create = {.phEvent = head->number, .Flags = was.flags};
    return fgw_saved_serve(worker, saved, &(struct fgw_saved_call){.call = FGV_CALL_cuEventCreate, .fixed = &create});
}
