/*
 * A launch in parts. Its request stays at the head of the backlog, and whatever keeps its place behind it waits there
 * too, so that the order of a stream is what it was; between two parts stands the same question as between two
 * launches: whether the turn allows one more.
 *
 * Boxes: rows of the grid, parts of a row, or planes, in the order of the blocks. How many blocks each has, and when
 * the next one goes out, is pace.c's. Every other box goes in a lane (lane.h), beside the stream, where it may run
 * together with the one before. No box is submitted before the last but two has ended, so the one before has begun or
 * is at the head of its stream: boxes still begin in the order of their blocks.
 *
 * Persistently: one launch of as many blocks as fit the device (persistent.c). When the turn is over it is told to
 * stop; when it has ended its counter says whether it is to go on.
 *
 * A stream may be stuck (behind a value that it waits for, by a host function of the guest), maybe until something
 * comes that stands behind this launch in the backlog. Then it goes whole. A kernel before it may wait for the guest as
 * well, which nobody can see: when nothing has ended for a second and something else is on the device, all that is left
 * is let go at once.
 *
 * Wrong when: the program has other streams with work that would run beside this kernel. It waits until the last part
 * is out.
 */
#include "parts/parts.h"

#include <string.h>

#include "base/count.h"
#include "base/sticky.h"
#include "client/current.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "cuda_api/variants.h"
#include "page/bell.h"
#include "page/layout.h"
#include "page/space.h"
#include "parts/grid.h"
#include "parts/lane.h"
#include "parts/launch.h"
#include "parts/pace.h"
#include "parts/part.h"
#include "parts/persistent.h"
#include "parts/state.h"
#include "parts/variant.h"
#include "track/state.h"
#include "turn/queue.h"
#include "turn/round.h"
#include "turn/turn.h"

#define FGW_LET_GO_NS UINT64_C(1000000000)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static CUresult submit_box(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                           struct fgw_launch *launch)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const uint32_t grid[3] = {launch->config.gridDimX, launch->config.gridDimY, launch->config.gridDimZ};
    struct fgw_grid_box box =
        fgw_grid_next_box(parts->next, grid, parts->is_let_go ? parts->nr_blocks_left : fgw_pace_blocks(worker));
    uint64_t nr_blocks = fgw_grid_nr_blocks(box.size);
    struct fgv_box_descriptor descriptor;
    memcpy(descriptor.first, box.first, sizeof(descriptor.first));
    memcpy(descriptor.grid, grid, sizeof(descriptor.grid));
    const struct fgw_part_shape shape = {.grid = {box.size[0], box.size[1], box.size[2]},
                                         .descriptor = &descriptor,
                                         .descriptor_bytes = sizeof(descriptor),
                                         .nr_blocks = nr_blocks,
                                         .forks = !parts->has_begun && parts->nr_blocks_left > nr_blocks};
    CUresult result = fgw_part_submit(worker, service, stream, launch, &shape);
    if (result == CUDA_SUCCESS) {
        fgw_grid_advance(parts->next, grid, &box);
        parts->nr_blocks_left -= least(nr_blocks, parts->nr_blocks_left);
    }
    return result;
}

/* Takes out of those in flight what has ended: boxes in their order. Returns their blocks. */
static uint64_t take_ended(struct fgw_parts *parts, const struct fgw_stream *stream, bool have_all_ended)
{
    const bool is_in_order = parts->variant->mode == FGW_SLICING_BOXES;
    uint64_t nr_blocks = 0;
    for (uint32_t i = 0; i < parts->nr_in_flight;) {
        if (have_all_ended || fgw_part_has_ended(parts, &parts->in_flight[i], stream)) {
            nr_blocks += parts->in_flight[i].nr_blocks;
            parts->nr_in_flight--;
            memmove(&parts->in_flight[i], &parts->in_flight[i + 1],
                    (parts->nr_in_flight - i) * sizeof(parts->in_flight[0]));
        } else if (is_in_order) {
            break;
        } else {
            i++;
        }
    }
    return nr_blocks;
}

static CUresult collect(struct fgw_worker *worker, const struct fgw_stream *stream, uint64_t nr_blocks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const uint64_t begun_ns = fgw_pace_begun_ns(parts);
    const CUresult result = stream->context->fault;
    const uint64_t nr_ended = take_ended(parts, stream, result != CUDA_SUCCESS);
    if (nr_ended == 0 || result != CUDA_SUCCESS) {
        return result;
    }
    parts->done_ns = fgw_clock_ns();
    if (parts->variant->mode == FGW_SLICING_PERSISTENT) {
        return parts->nr_in_flight == 0 ? fgw_persistent_ended(worker, nr_blocks) : CUDA_SUCCESS;
    }
    fgw_pace_learn(parts->variant, nr_ended, parts->done_ns - begun_ns);
    return CUDA_SUCCESS;
}

static bool has_room(struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    if (parts->is_let_go) {
        return true;
    }
    return parts->variant->mode == FGW_SLICING_PERSISTENT ? fgw_persistent_has_room(worker) : fgw_pace_has_room(worker);
}

/* The lane is entered when the part before cannot stand behind another one in the stream: else the one in the lane
 * might begin first. */
static bool enter_lane(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    if (!parts->has_entered && parts->nr_in_flight <= 1 && fgw_lane_is_free(parts->lane, parts->stream)) {
        parts->has_entered = fgw_lane_enter(worker, parts->lane, stream, parts->stream) == CUDA_SUCCESS;
        if (!parts->has_entered) {
            parts->lane = NULL;
        }
    }
    return parts->has_entered;
}

/* Where the next box goes. */
static struct fgw_stream *next_stream(struct fgw_worker *worker, struct fgw_stream *stream)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const bool is_lanes_turn = parts->lane && !parts->was_in_lane && !parts->is_let_go;
    return is_lanes_turn && enter_lane(worker, stream) ? &parts->lane->stream : stream;
}

/* Of a persistent kernel the last block may not have been taken while it runs. */
static bool is_out(const struct fgw_parts *parts)
{
    return parts->has_begun && parts->nr_blocks_left == 0 &&
           (parts->variant->mode != FGW_SLICING_PERSISTENT || parts->nr_in_flight == 0);
}

/* The variant takes more of the device than the kernel does: it is not tried again. */
static void give_up(struct fgw_worker *worker, const struct fgw_launch *launch)
{
    struct fgw_kernel *kernel = launch->kernel;
    fgw_variant_drop(worker, kernel->variant);
    kernel->variant = NULL;
    kernel->why_whole = FGV_WHOLE_NOT_LAUNCHED;
    fgw_count_whole(worker, FGV_WHOLE_NOT_LAUNCHED);
}

static CUresult submit_part(struct fgw_worker *worker, const struct fgw_service *service,
                            const struct fgw_request *request, struct fgw_stream *stream, struct fgw_launch *launch)
{
    CUresult result = fgw_launch_read(worker, request, launch);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgw_round_submit(worker, stream, request);
    return worker->slicing->parts.variant->mode == FGW_SLICING_PERSISTENT
               ? fgw_persistent_submit(worker, service, stream, launch)
               : submit_box(worker, service, next_stream(worker, stream), launch);
}

/* As of the last look at the device: a worker that did not run for a second knows nothing of it. */
bool fgw_parts_are_stuck(const struct fgw_worker *worker)
{
    return worker->track->nr_unfinished > worker->slicing->parts.nr_in_flight &&
           worker->track->polled_ns > worker->track->last_finish_ns + FGW_LET_GO_NS;
}

/* What comes behind the launch in its stream comes behind what is in the lane, too. */
static CUresult end(struct fgw_worker *worker, struct fgw_stream *stream, CUresult result)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    if (parts->has_entered && stream && stream->context->fault == CUDA_SUCCESS) {
        CUresult joined = fgw_lane_join(worker, parts->lane, stream);
        result = result == CUDA_SUCCESS ? joined : result;
    }
    if (parts->variant->mode == FGW_SLICING_PERSISTENT && parts->nr_in_flight != 0) {
        parts->variant->is_let_go = true;
    }
    fgw_space_tell_kept_out(&worker->grantee, false);
    fgw_count(&worker->slot->nr_sliced, 1);
    *parts = (struct fgw_parts){0};
    return result;
}

enum fgw_parts_state fgw_parts_submit(struct fgw_worker *worker, const struct fgw_service *service,
                                      const struct fgw_request *request, CUresult *result)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    struct fgw_launch launch;
    *result = fgw_context_enter(worker, request->header->context);
    struct fgw_stream *stream = *result == CUDA_SUCCESS ? fgw_stream_find(worker, fixed->stream) : NULL;
    if (*result == CUDA_SUCCESS) {
        *result = stream ? collect(worker, stream, fgw_grid_nr_blocks(fixed->grid)) : CUDA_ERROR_INVALID_HANDLE;
    }
    parts->is_let_go |= fgw_parts_are_stuck(worker);
    while (*result == CUDA_SUCCESS && !is_out(parts)) {
        if (worker->turn->is_displaced || !has_room(worker) || !fgw_queue_has_room(worker) || !fgw_turn_begin(worker) ||
            (fgw_queue_is_deep(worker) && !fgw_queue_fits_stream(worker, stream))) {
            return FGW_PARTS_MORE;
        }
        *result = submit_part(worker, service, request, stream, &launch);
        if (*result != CUDA_SUCCESS && !parts->has_begun && !fgw_is_sticky(*result)) {
            give_up(worker, &launch);
            return FGW_PARTS_WHOLE;
        }
    }
    *result = end(worker, stream, *result);
    return FGW_PARTS_OUT;
}

bool fgw_parts_is_one(const struct fgw_worker *worker)
{
    return worker->slicing->parts.variant != NULL;
}

bool fgw_parts_answers(const struct fgw_worker *worker, const struct fgw_request *request)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    const struct fgv_request_cuStreamQuery *fixed = request->fixed;
    return (parts->variant || parts->is_awaited) && request->header->call == FGV_CALL_cuStreamQuery &&
           fixed->hStream == parts->stream && parts->context == request->header->context;
}
