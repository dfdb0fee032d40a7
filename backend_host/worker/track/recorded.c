#include "track/recorded.h"

#include <string.h>

#include "client/handles.h"
#include "cuda_api/wire.h"

void fgw_recorded_note(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                       struct fgw_stream *stream)
{
    if (service->number != FGV_CALL_cuEventRecord && service->number != FGV_CALL_cuEventRecordWithFlags) {
        return;
    }
    uint64_t number;
    memcpy(&number, (const uint8_t *)request->fixed + service->event_offset, sizeof(number));
    fgw_handle_record(worker, FGV_HANDLE_EVENT, number, stream->last_seq);
    stream->recorded = number;
}

/* The legacy stream is done when all blocking ones are: what was put into others later counts there. */
static bool is_newest(const struct fgw_stream *stream)
{
    const struct fgw_context *context = stream->context;
    for (const struct fgw_stream *other = stream == &context->legacy ? context->streams : NULL; other;
         other = other->next) {
        if (other->last_seq > stream->last_seq) {
            return false;
        }
    }
    return true;
}

bool fgw_recorded_tells_done(struct fgw_worker *worker, const struct fgw_service *service,
                             const struct fgw_request *request)
{
    const struct fgv_request_cuStreamQuery *fixed = request->fixed;
    const bool is_query = service->number == FGV_CALL_cuStreamQuery;
    const struct fgw_stream *stream = is_query ? fgw_stream_find(worker, fixed->hStream) : NULL;
    if (!stream || stream->recorded == 0 || !is_newest(stream)) {
        return false;
    }
    const struct fgw_handle event = fgw_handle_find(worker, FGV_HANDLE_EVENT, stream->recorded);
    return event.native && event.recorded_seq == stream->last_seq &&
           worker->driver.cuEventQuery(event.native) == CUDA_SUCCESS;
}
