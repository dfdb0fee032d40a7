/* Lanes: see lane.h. */
#include "parts/lane.h"

#include <stdlib.h>

#include "client/state.h"
#include "client/stream.h"
#include "track/sync.h"

static struct fgw_lane *find(const struct fgw_context *context, int priority)
{
    struct fgw_lane *lane = context->lanes;
    while (lane && lane->priority != priority) {
        lane = lane->next;
    }
    return lane;
}

static struct fgw_lane *make(struct fgw_worker *worker, struct fgw_context *context, int priority)
{
    const struct fgv_driver *driver = &worker->driver;
    CUstream native = NULL;
    struct fgw_lane *lane = calloc(1, sizeof(*lane));
    if (!lane || driver->cuEventCreate(&lane->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        free(lane);
        return NULL;
    }
    if (driver->cuStreamCreateWithPriority(&native, CU_STREAM_NON_BLOCKING, priority) != CUDA_SUCCESS) {
        driver->cuEventDestroy_v2(lane->event);
        free(lane);
        return NULL;
    }
    fgw_stream_init(&lane->stream, context, native);
    lane->priority = priority;
    lane->next = context->lanes;
    context->lanes = lane;
    return lane;
}

struct fgw_lane *fgw_lane_fork(struct fgw_worker *worker, struct fgw_stream *stream)
{
    const struct fgv_driver *driver = &worker->driver;
    int priority = 0;
    if (!driver->cuStreamCreateWithPriority || !driver->cuStreamGetPriority || !driver->cuStreamWaitEvent ||
        driver->cuStreamGetPriority(stream->native, &priority) != CUDA_SUCCESS) {
        return NULL;
    }
    struct fgw_lane *lane = find(stream->context, priority);
    if (!lane) {
        lane = make(worker, stream->context, priority);
    }
    return lane && driver->cuEventRecord(lane->event, stream->native) == CUDA_SUCCESS ? lane : NULL;
}

bool fgw_lane_is_free(const struct fgw_lane *lane, uint64_t partner)
{
    return lane->partner == partner || lane->stream.done_seq >= lane->stream.last_seq;
}

CUresult fgw_lane_enter(struct fgw_worker *worker, struct fgw_lane *lane, const struct fgw_stream *stream,
                        uint64_t partner)
{
    const struct fgv_driver *driver = &worker->driver;
    lane->partner = partner;
    if (driver->cuStreamCopyAttributes) {
        /* What the program set for its kernels' use of L2. Without it they are slower and no less right. */
        driver->cuStreamCopyAttributes(lane->stream.native, stream->native);
    }
    return driver->cuStreamWaitEvent(lane->stream.native, lane->event, 0);
}

CUresult fgw_lane_join(struct fgw_worker *worker, struct fgw_lane *lane, struct fgw_stream *stream)
{
    CUresult result = worker->driver.cuEventRecord(lane->event, lane->stream.native);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuStreamWaitEvent(stream->native, lane->event, 0);
    }
    fgw_stream_touch(worker, stream);
    return result;
}

void fgw_lanes_drop(struct fgw_worker *worker, struct fgw_context *context)
{
    while (context->lanes) {
        struct fgw_lane *lane = context->lanes;
        context->lanes = lane->next;
        worker->driver.cuEventDestroy_v2(lane->event);
        if (worker->driver.cuStreamDestroy_v2) {
            worker->driver.cuStreamDestroy_v2(lane->stream.native);
        }
        fgw_stream_remove(&lane->stream);
        free(lane);
    }
    if (context->side_stream && worker->driver.cuStreamDestroy_v2) {
        worker->driver.cuStreamDestroy_v2(context->side_stream);
    }
    context->side_stream = NULL;
}
