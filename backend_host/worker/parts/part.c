/*
 * One part of a large launch: a launch of the kernel's variant with a descriptor behind the parameters, submitted as
 * serve.c submits any work. In front of the first go the constants, as they are now.
 */
#include "parts/part.h"

#include <string.h>

#include "base/count.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "page/bell.h"
#include "page/layout.h"
#include "parts/lane.h"
#include "parts/launch.h"
#include "parts/state.h"
#include "track/behind.h"
#include "track/gate.h"
#include "track/sync.h"
#include "turn/beside.h"

static CUresult fill_constants(struct fgw_worker *worker, CUstream stream)
{
    const struct fgw_variant *variant = worker->slicing->parts.variant;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < variant->nr_constants && result == CUDA_SUCCESS; i++) {
        const struct fgw_variant_constant *constant = &variant->constants[i];
        result = worker->driver.cuMemcpyDtoDAsync_v2
                     ? worker->driver.cuMemcpyDtoDAsync_v2(constant->to, constant->from, constant->bytes, stream)
                     : CUDA_ERROR_NOT_SUPPORTED;
    }
    return result;
}

/* Right before it. What the lane gets comes behind all that stands in the stream by now. */
static CUresult prepare(struct fgw_worker *worker, struct fgw_stream *stream, bool forks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    CUresult result = parts->has_begun ? CUDA_SUCCESS : fill_constants(worker, stream->native);
    if (forks) {
        struct fgw_lane *lane = fgw_lane_fork(worker, stream);
        parts->is_forked = lane != NULL;
        parts->lane = lane ? lane : parts->lane;
    }
    return result;
}

static void describe(struct fgw_launch *launch, const struct fgw_variant *variant, const struct fgw_stream *stream,
                     const struct fgw_part_shape *shape)
{
    memset(launch->parameters + launch->parameter_bytes, 0, variant->descriptor_offset - launch->parameter_bytes);
    memcpy(launch->parameters + variant->descriptor_offset, shape->descriptor, shape->descriptor_bytes);
    launch->parameter_bytes = variant->descriptor_offset + shape->descriptor_bytes;
    launch->config.hStream = stream->native;
    launch->config.gridDimX = shape->grid[0];
    launch->config.gridDimY = shape->grid[1];
    launch->config.gridDimZ = shape->grid[2];
}

CUresult fgw_part_submit(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                         struct fgw_launch *launch, const struct fgw_part_shape *shape)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const bool is_in_lane = parts->has_entered && stream == &parts->lane->stream;
    describe(launch, parts->variant, stream, shape);
    fgw_behind_before(worker, service, stream);
    fgw_gate_submit(worker, stream);
    fgw_beside_prepare(worker, stream);
    CUresult result = prepare(worker, stream, shape->forks);
    uint64_t submitted_ns = fgw_clock_ns();
    if (result == CUDA_SUCCESS) {
        result = fgw_launch_submit(worker, launch, parts->variant->function);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgw_sync_submitted(worker, stream);
    fgw_stream_mark(worker, stream);
    if (!parts->is_let_go) {
        parts->in_flight[parts->nr_in_flight++] = (struct fgw_part){.seq = stream->last_seq,
                                                                    .nr_blocks = shape->nr_blocks,
                                                                    .submitted_ns = submitted_ns,
                                                                    .is_in_lane = is_in_lane};
    }
    parts->was_in_lane = is_in_lane;
    parts->has_begun = true;
    fgw_count(&worker->slot->nr_parts, 1);
    return CUDA_SUCCESS;
}

bool fgw_part_has_ended(const struct fgw_parts *parts, const struct fgw_part *part, const struct fgw_stream *stream)
{
    return (part->is_in_lane ? &parts->lane->stream : stream)->done_seq >= part->seq;
}
