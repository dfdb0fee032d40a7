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
 * Persistently: one launch of as many blocks as fit the device. When the turn is over it is told to stop; when it has
 * ended its counter says whether it is to go on.
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
#include "client/handles.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "cuda_api/variants.h"
#include "page/bell.h"
#include "page/layout.h"
#include "page/outlook.h"
#include "parts/grid.h"
#include "parts/lane.h"
#include "parts/launch.h"
#include "parts/making.h"
#include "parts/pace.h"
#include "parts/state.h"
#include "parts/variant.h"
#include "track/behind.h"
#include "track/gate.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/beside.h"
#include "turn/queue.h"
#include "turn/turn.h"

#define FGW_LET_GO_NS     UINT64_C(1000000000)
#define FGW_STOP_AGAIN_NS UINT64_C(1000000) /* a stop that came before the kernel's start was overwritten */

static CUdeviceptr counter_of(const struct fgw_variant *variant)
{
    return variant->state + offsetof(struct fgv_persistent_state, counter);
}

static CUdeviceptr limit_of(const struct fgw_variant *variant)
{
    return variant->state + offsetof(struct fgv_persistent_state, limit);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Before the first part: constants as they are now. */
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

/* Right before the first part. */
static CUresult prepare(struct fgw_worker *worker, struct fgw_stream *stream, uint64_t nr_blocks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    CUresult result = fill_constants(worker, stream->native);
    if (parts->variant->mode == FGW_SLICING_BOXES && parts->nr_blocks_left > nr_blocks) {
        parts->lane = fgw_lane_fork(worker, stream); /* for what comes behind the constants */
    }
    return result;
}

/* Submits a part, as serve.c does any work. */
static CUresult submit(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                       struct fgw_launch *launch, const uint32_t grid[3], const void *descriptor,
                       size_t descriptor_bytes, uint64_t nr_blocks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const bool is_in_lane = parts->has_entered && stream == &parts->lane->stream;
    CUresult result = CUDA_SUCCESS;
    memset(launch->parameters + launch->parameter_bytes, 0,
           parts->variant->descriptor_offset - launch->parameter_bytes);
    memcpy(launch->parameters + parts->variant->descriptor_offset, descriptor, descriptor_bytes);
    launch->parameter_bytes = parts->variant->descriptor_offset + descriptor_bytes;
    launch->config.hStream = stream->native;
    launch->config.gridDimX = grid[0];
    launch->config.gridDimY = grid[1];
    launch->config.gridDimZ = grid[2];
    fgw_behind_before(worker, service, stream);
    fgw_gate_submit(worker, stream);
    fgw_beside_prepare(worker, stream);
    if (!parts->has_begun) {
        result = prepare(worker, stream, nr_blocks);
    }
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
        parts->in_flight[parts->nr_in_flight++] = (struct fgw_part){
            .seq = stream->last_seq, .nr_blocks = nr_blocks, .submitted_ns = submitted_ns, .is_in_lane = is_in_lane};
    }
    parts->was_in_lane = is_in_lane;
    parts->has_begun = true;
    fgw_count(&worker->slot->nr_parts, 1);
    return CUDA_SUCCESS;
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
    CUresult result = submit(worker, service, stream, launch, box.size, &descriptor, sizeof(descriptor), nr_blocks);
    if (result == CUDA_SUCCESS) {
        fgw_grid_advance(parts->next, grid, &box);
        parts->nr_blocks_left -= least(nr_blocks, parts->nr_blocks_left);
    }
    return result;
}

/* As many blocks as fit the device, and no more than there are. */
static uint32_t resident_blocks(struct fgw_worker *worker, const struct fgw_launch *launch, uint64_t nr_blocks)
{
    const struct fgv_driver *driver = &worker->driver;
    const CUlaunchConfig *config = &launch->config;
    int nr_each = 0;
    int nr_multiprocessors = 0;
    driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &nr_each, worker->slicing->parts.variant->function,
        (int)(config->blockDimX * config->blockDimY * config->blockDimZ), config->sharedMemBytes);
    driver->cuDeviceGetAttribute(&nr_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, worker->device);
    uint64_t nr = nr_each > 0 && nr_multiprocessors > 0 ? (uint64_t)nr_each * (uint64_t)nr_multiprocessors : 1;
    return (uint32_t)least(nr, nr_blocks);
}

/* One that is let go begins where the one before it in the stream will have stopped. */
static CUresult set_state(struct fgw_worker *worker, CUstream stream, uint64_t counter)
{
    const struct fgw_variant *variant = worker->slicing->parts.variant;
    uint64_t run_blocks = worker->slicing->parts.is_let_go ? 0 : worker->slicing->settings.run_blocks;
    CUresult result = worker->slicing->parts.is_let_go && worker->slicing->parts.nr_in_flight != 0
                          ? CUDA_SUCCESS
                          : worker->driver.cuStreamWriteValue64_v2(stream, counter_of(variant), counter,
                                                                   CU_STREAM_WRITE_VALUE_DEFAULT);

    return result != CUDA_SUCCESS
               ? result
               : worker->driver.cuStreamWriteValue64_v2(stream, limit_of(variant),
                                                        run_blocks != 0 ? counter + run_blocks : UINT64_MAX,
                                                        CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult submit_persistent(struct fgw_worker *worker, const struct fgw_service *service,
                                  struct fgw_stream *stream, struct fgw_launch *launch)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const CUlaunchConfig *config = &launch->config;
    struct fgv_persistent_descriptor descriptor = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ}};
    descriptor.nr_blocks = fgw_grid_nr_blocks(descriptor.grid);
    const uint32_t grid[3] = {resident_blocks(worker, launch, parts->nr_blocks_left), 1, 1};
    CUresult result = set_state(worker, config->hStream, descriptor.nr_blocks - parts->nr_blocks_left);
    parts->stopped_ns = 0;
    if (result == CUDA_SUCCESS) {
        result = submit(worker, service, stream, launch, grid, &descriptor, sizeof(descriptor), parts->nr_blocks_left);
    }
    if (result == CUDA_SUCCESS && parts->is_let_go) {
        parts->variant->is_let_go = true;
        parts->nr_blocks_left = 0;
        parts->nr_in_flight = 0; /* nobody stops it, or looks how far it came */
    }
    return result;
}

/* A persistent kernel has ended: how far it came. */
static CUresult read_counter(struct fgw_worker *worker, uint64_t nr_blocks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    uint64_t counter = 0;
    CUstream stream = fgw_stream_side(worker);
    CUresult result =
        stream ? worker->driver.cuMemcpyDtoHAsync_v2(&counter, counter_of(parts->variant), sizeof(counter), stream)
               : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuStreamSynchronize(stream);
    }
    parts->nr_blocks_left = nr_blocks - least(counter, nr_blocks);
    return result;
}

/* Whether the first of the parts in flight has. */
static bool has_ended(const struct fgw_parts *parts, const struct fgw_stream *stream)
{
    const struct fgw_part *part = &parts->in_flight[0];
    return (part->is_in_lane ? &parts->lane->stream : stream)->done_seq >= part->seq;
}

/* Takes the parts that have ended out of those in flight. */
static CUresult collect(struct fgw_worker *worker, const struct fgw_stream *stream, uint64_t nr_blocks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    uint64_t begun_ns = fgw_pace_begun_ns(parts);
    uint64_t nr_ended = 0; /* blocks */
    CUresult result = stream->context->fault;
    while (parts->nr_in_flight != 0 && (result != CUDA_SUCCESS || has_ended(parts, stream))) {
        nr_ended += parts->in_flight[0].nr_blocks;
        memmove(&parts->in_flight[0], &parts->in_flight[1], (parts->nr_in_flight - 1) * sizeof(parts->in_flight[0]));
        parts->nr_in_flight--;
    }
    if (nr_ended == 0 || result != CUDA_SUCCESS) {
        return result;
    }
    parts->done_ns = fgw_clock_ns();
    if (parts->variant->mode == FGW_SLICING_PERSISTENT) {
        return read_counter(worker, nr_blocks);
    }
    fgw_pace_learn(parts->variant, nr_ended, parts->done_ns - begun_ns);
    return CUDA_SUCCESS;
}

static bool has_room(const struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    if (parts->is_let_go) {
        return true;
    }
    if (parts->variant->mode == FGW_SLICING_PERSISTENT) {
        return parts->nr_in_flight == 0;
    }
    return fgw_pace_has_room(worker);
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

/* Where the next part goes. */
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
    return worker->slicing->parts.variant->mode == FGW_SLICING_PERSISTENT
               ? submit_persistent(worker, service, stream, launch)
               : submit_box(worker, service, stream, launch);
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
    fgw_count(&worker->slot->nr_sliced, 1);
    *parts = (struct fgw_parts){0};
    return result;
}

enum fgw_parts_state fgw_parts_submit(struct fgw_worker *worker, const struct fgw_service *service,
                                      const struct fgw_request *request, CUresult *result)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    struct fgw_stream *stream = fgw_stream_find(worker, fixed->stream);
    struct fgw_launch launch;
    *result = stream ? collect(worker, stream, fgw_grid_nr_blocks(fixed->grid)) : CUDA_ERROR_INVALID_HANDLE;
    parts->is_let_go |= fgw_parts_are_stuck(worker);
    while (*result == CUDA_SUCCESS && !is_out(parts)) {
        if (!has_room(worker) || !fgw_queue_has_room(worker) || !fgw_turn_begin(worker) ||
            (fgw_queue_is_deep(worker) && !fgw_queue_fits_stream(worker, stream))) {
            return FGW_PARTS_MORE;
        }
        *result = submit_part(worker, service, request, next_stream(worker, stream), &launch);
        if (*result != CUDA_SUCCESS && !parts->has_begun && !fgw_is_sticky(*result)) {
            give_up(worker, &launch);
            return FGW_PARTS_WHOLE;
        }
    }
    *result = end(worker, stream, *result);
    return FGW_PARTS_OUT;
}

bool fgw_parts_can_stop(const struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    return parts->variant && parts->variant->mode == FGW_SLICING_PERSISTENT && parts->nr_in_flight != 0;
}

void fgw_parts_stop(struct fgw_worker *worker)
{
    if (!fgw_parts_can_stop(worker)) {
        return;
    }
    fgw_context_make_current(worker, worker->slicing->parts.variant->context);
    CUstream stream = fgw_stream_side(worker);
    worker->slicing->parts.told_ns = fgw_clock_ns();
    if (worker->slicing->parts.stopped_ns == 0) {
        worker->slicing->parts.stopped_ns = worker->slicing->parts.told_ns;
    }
    if (stream) {
        worker->driver.cuStreamWriteValue64_v2(stream, limit_of(worker->slicing->parts.variant), 0,
                                               CU_STREAM_WRITE_VALUE_DEFAULT);
    }
}

bool fgw_parts_is_one(const struct fgw_worker *worker)
{
    return worker->slicing->parts.variant != NULL;
}

uint64_t fgw_parts_stop_once(struct fgw_worker *worker)
{
    if (!fgw_parts_can_stop(worker)) {
        return 0;
    }
    if (worker->slicing->parts.stopped_ns == 0) {
        fgw_parts_stop(worker);
    }
    return worker->slicing->parts.stopped_ns;
}

void fgw_parts_poll(struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    fgw_makings_poll(worker);
    if (!fgw_parts_can_stop(worker) || fgw_grant_has(&worker->grantee)) {
        return;
    }
    if (parts->stopped_ns == 0 || fgw_clock_ns() - parts->told_ns >= FGW_STOP_AGAIN_NS) {
        fgw_parts_stop(worker);
    }
}

bool fgw_parts_answers(const struct fgw_worker *worker, const struct fgw_request *request)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    const struct fgv_request_cuStreamQuery *fixed = request->fixed;
    return (parts->variant || parts->is_awaited) && request->header->call == FGV_CALL_cuStreamQuery &&
           fixed->hStream == parts->stream && parts->context == request->header->context;
}
