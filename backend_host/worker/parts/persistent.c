/*
 * Persistent launches. The variant's state says where a launch is: the next number, the first that is not to run, and
 * with a split how many blocks are on each multiprocessor. It is set in the program's stream in front of each launch,
 * when nothing of the variant runs, and read when the launch has ended.
 *
 * To stop it the limit is set to 0 by a stream memory operation, which needs no multiprocessor. A stop that comes
 * before the kernel's start is overwritten, so it is told again.
 *
 * Under a split a launch has a block for every place of the device, however few numbers are left: those that begin
 * where none may be end at once, and it is not known which do. What is let go has no split, as nobody would launch it
 * again for the numbers that are left.
 *
 * The state is memory of the guest's context, so a hostile program may write it. Rubbish in it makes a launch end early
 * or its blocks run twice: the worker reads it with bounds, waits for nothing that it says, and each launch has its
 * turn as any work. The split word may be anything, too: no number in it reaches beyond the device.
 *
 * Wrong when: a multiprocessor has less room than the driver says because somebody else's blocks are there. Then blocks
 * of the launch begin as places come free, and until the last has begun the launch has not ended.
 */
#include "parts/persistent.h"

#include "base/sticky.h"
#include "client/current.h"
#include "client/state.h"
#include "client/stream.h"
#include "cuda_api/variants.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "page/space.h"
#include "parts/grid.h"
#include "parts/lane.h"
#include "parts/launch.h"
#include "parts/part.h"
#include "parts/state.h"
#include "turn/turn.h"

#define FGW_STOP_AGAIN_NS UINT64_C(1000000)
/* So often it is looked whether the split leaves a place, by who is kept out and by who wants blocks back: a copy each
 * time. */
#define FGW_LOOK_AGAIN_NS UINT64_C(100000)

#define NR_COUNTS (sizeof(((struct fgv_persistent_state *)NULL)->live) / sizeof(uint32_t))

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

uint32_t fgw_resident_each(const struct fgw_worker *worker, const CUlaunchConfig *config, CUfunction function)
{
    int nr = 0;
    int nr_threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    worker->driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&nr, function, nr_threads, config->sharedMemBytes);
    return nr > 0 ? (uint32_t)nr : 0;
}

uint32_t fgw_multiprocessors(const struct fgw_worker *worker)
{
    int nr = 0;
    worker->driver.cuDeviceGetAttribute(&nr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, worker->device);
    return nr > 0 ? (uint32_t)nr : 0;
}

static uint64_t nr_blocks_of(const struct fgw_launch *launch)
{
    const CUlaunchConfig *config = &launch->config;
    return fgw_grid_nr_blocks((const uint32_t[3]){config->gridDimX, config->gridDimY, config->gridDimZ});
}

static bool has_split(const struct fgw_worker *worker)
{
    return worker->slicing->settings.split_address != 0 && !worker->slicing->parts.is_let_go;
}

/* While kernels of other streams run. */
static CUresult read_beside(struct fgw_worker *worker, void *to, CUdeviceptr from, size_t bytes)
{
    CUstream stream = fgw_stream_side(worker);
    CUresult result = stream ? worker->driver.cuMemcpyDtoHAsync_v2(to, from, bytes, stream) : CUDA_ERROR_OUT_OF_MEMORY;
    return result == CUDA_SUCCESS ? worker->driver.cuStreamSynchronize(stream) : result;
}

/* ---------- places ---------- */

/* How many blocks the split leaves on a multiprocessor. */
static uint32_t most_on(uint32_t multiprocessor, uint32_t most_each, uint32_t split)
{
    const uint32_t fewer = multiprocessor < FGW_SPLIT_N(split) ? FGW_SPLIT_K(split) : 0;
    return fewer < most_each ? most_each - fewer : 0;
}

/* Places that the split leaves and that no block counted in `live` has; without `live` all that it leaves. */
static uint64_t free_places(const struct fgw_worker *worker, uint32_t split, const uint32_t *live)
{
    const uint32_t nr_multiprocessors = fgw_multiprocessors(worker);
    uint64_t nr = 0;
    for (uint32_t i = 0; i < nr_multiprocessors; i++) {
        const uint32_t most = most_on(i, worker->slicing->parts.most_each, split);
        const uint32_t taken = live && i < NR_COUNTS ? live[i] : 0;
        nr += taken < most ? most - taken : 0;
    }
    return nr;
}

/* A word that cannot be read leaves all: the blocks look for themselves. */
static uint32_t read_split(struct fgw_worker *worker)
{
    uint32_t split = 0;
    return read_beside(worker, &split, worker->slicing->settings.split_address, sizeof(split)) == CUDA_SUCCESS ? split
                                                                                                               : 0;
}

/* Whether it is not kept out. What ended with numbers left, because its blocks gave way or found no place, is until the
 * word was seen to leave one; then it waits for its turn. */
static bool may_begin(struct fgw_worker *worker)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    if (!parts->gave_way || !has_split(worker)) {
        return true;
    }
    const uint64_t now_ns = fgw_clock_ns();
    if (now_ns - parts->looked_ns < FGW_LOOK_AGAIN_NS) {
        return false;
    }
    parts->looked_ns = now_ns;
    parts->gave_way = free_places(worker, read_split(worker), NULL) == 0;
    return !parts->gave_way;
}

bool fgw_persistent_has_room(struct fgw_worker *worker)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    if (parts->is_let_go) {
        return true;
    }
    if (parts->nr_in_flight != 0) {
        return parts->wants_back && fgw_clock_ns() - parts->looked_ns >= FGW_LOOK_AGAIN_NS;
    }
    const bool is_kept_out = !may_begin(worker);
    fgw_space_tell_kept_out(&worker->grantee, is_kept_out);
    if (is_kept_out) {
        fgw_turn_set_gated(worker, true); /* it wants no turn */
    }
    return !is_kept_out;
}

void fgw_persistent_take_back(struct fgw_worker *worker)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    parts->wants_back = fgw_persistent_can_stop(worker) && parts->stopped_ns == 0 && has_split(worker);
    parts->wanted_ns = fgw_clock_ns();
}

void fgw_persistent_share(struct fgw_worker *worker, uint64_t split_address)
{
    worker->slicing->settings.split_address = split_address;
    worker->slicing->settings.shares_device = 1;
}

/* The word asks for less than when it was last looked at. */
static bool is_room_back(struct fgw_worker *worker)
{
    const uint32_t before = worker->slicing->seen_split;
    const uint32_t split = fgw_space_standing_split(&worker->grantee);
    worker->slicing->seen_split = split;
    return FGW_SPLIT_N(split) < FGW_SPLIT_N(before) || FGW_SPLIT_K(split) < FGW_SPLIT_K(before);
}

/* ---------- to the device ---------- */

/* One that is let go begins where the one before it in the stream will have stopped. Otherwise nothing of the variant
 * runs by then. */
static CUresult set_state(struct fgw_worker *worker, CUstream stream, uint64_t counter)
{
    const struct fgv_driver *driver = &worker->driver;
    const struct fgw_parts *parts = &worker->slicing->parts;
    const struct fgw_variant *variant = parts->variant;
    const uint64_t run_blocks = parts->is_let_go ? 0 : worker->slicing->settings.run_blocks;
    const uint64_t limit = run_blocks != 0 ? counter + run_blocks : UINT64_MAX;
    CUresult result = CUDA_SUCCESS;
    if (!parts->is_let_go || parts->nr_in_flight == 0) {
        result = driver->cuStreamWriteValue64_v2(stream, counter_of(variant), counter, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
    if (result == CUDA_SUCCESS && has_split(worker)) {
        const CUdeviceptr live = variant->state + offsetof(struct fgv_persistent_state, live);
        result = driver->cuMemsetD32Async(live, 0, NR_COUNTS, stream);
    }
    return result != CUDA_SUCCESS
               ? result
               : driver->cuStreamWriteValue64_v2(stream, limit_of(variant), limit, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult submit(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                       struct fgw_launch *launch, uint64_t nr_blocks, bool forks)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    const CUlaunchConfig *config = &launch->config;
    struct fgv_persistent_descriptor descriptor = {.nr_blocks = nr_blocks_of(launch),
                                                   .grid = {config->gridDimX, config->gridDimY, config->gridDimZ}};
    if (has_split(worker)) {
        descriptor.most_each = parts->most_each;
        descriptor.split = worker->slicing->settings.split_address;
    }
    const struct fgw_part_shape shape = {.grid = {(uint32_t)least(nr_blocks, INT32_MAX), 1, 1},
                                         .descriptor = &descriptor,
                                         .descriptor_bytes = sizeof(descriptor),
                                         .nr_blocks = parts->nr_blocks_left,
                                         .forks = forks};
    return fgw_part_submit(worker, service, stream, launch, &shape);
}

static CUresult begin(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                      struct fgw_launch *launch)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    parts->most_each = fgw_resident_each(worker, &launch->config, parts->variant->function);
    const uint64_t nr_places = (uint64_t)parts->most_each * fgw_multiprocessors(worker);
    uint64_t nr = nr_places != 0 ? nr_places : 1;
    if (!has_split(worker)) {
        nr = least(nr, parts->nr_blocks_left);
    }
    CUresult result = set_state(worker, stream->native, nr_blocks_of(launch) - parts->nr_blocks_left);
    parts->stopped_ns = 0;
    parts->gave_way = false;
    worker->slicing->seen_split = fgw_space_standing_split(&worker->grantee);
    if (result == CUDA_SUCCESS) {
        result = submit(worker, service, stream, launch, nr, has_split(worker));
    }
    if (result == CUDA_SUCCESS && parts->is_let_go) {
        parts->variant->is_let_go = true;
        parts->nr_blocks_left = 0;
        parts->nr_in_flight = 0; /* nobody stops it, or looks how far it came */
    }
    return result;
}

/* Where blocks go that run beside those that are out: in the lane, or in the program's stream if those are in the lane.
 * NULL: they are in both. */
static struct fgw_stream *stream_beside(struct fgw_worker *worker, struct fgw_stream *stream)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    if (parts->nr_in_flight != 1) {
        return NULL;
    }
    if (parts->in_flight[0].is_in_lane) {
        return stream;
    }
    if (!fgw_lane_is_free(parts->lane, parts->stream) ||
        fgw_lane_enter(worker, parts->lane, stream, parts->stream) != CUDA_SUCCESS) {
        return NULL;
    }
    parts->has_entered = true;
    return &parts->lane->stream;
}

/* What the state says before that is another launch's. */
static bool has_begun(const struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    return parts->is_forked && worker->driver.cuEventQuery(parts->lane->event) == CUDA_SUCCESS;
}

/* Places that nobody has, as many as there are numbers left. It is too early where the launch has not begun, or where
 * the word does not stand yet for what its writer has told: the device writes it some time later. */
static uint64_t blocks_to_take_back(struct fgw_worker *worker, uint64_t nr_blocks, bool *is_early)
{
    struct fgv_persistent_state state;
    const uint32_t split = read_split(worker);
    *is_early = !has_begun(worker) ||
                (worker->slicing->settings.shares_device != 0 && split != fgw_space_standing_split(&worker->grantee));
    if (*is_early ||
        read_beside(worker, &state, worker->slicing->parts.variant->state, sizeof(state)) != CUDA_SUCCESS) {
        return 0;
    }
    return least(free_places(worker, split, state.live), nr_blocks - least(state.counter, nr_blocks));
}

/* What goes wrong with it is no error of the launch, which goes on without. */
static CUresult take_back(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                          struct fgw_launch *launch)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    bool is_early = false;
    const uint64_t nr = parts->stopped_ns == 0 ? blocks_to_take_back(worker, nr_blocks_of(launch), &is_early) : 0;
    parts->wants_back = is_early;
    parts->looked_ns = fgw_clock_ns();
    if (nr == 0) {
        return CUDA_SUCCESS;
    }
    struct fgw_stream *beside = stream_beside(worker, stream);
    if (!beside) {
        fgw_persistent_stop(worker);
        return CUDA_SUCCESS;
    }
    CUresult result = submit(worker, service, beside, launch, nr, false);
    return fgw_is_sticky(result) ? result : CUDA_SUCCESS;
}

CUresult fgw_persistent_submit(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                               struct fgw_launch *launch)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    return parts->is_let_go || parts->nr_in_flight == 0 ? begin(worker, service, stream, launch)
                                                        : take_back(worker, service, stream, launch);
}

CUresult fgw_persistent_ended(struct fgw_worker *worker, uint64_t nr_blocks)
{
    struct fgw_parts *parts = &worker->slicing->parts;
    uint64_t counter = 0;
    CUresult result = read_beside(worker, &counter, counter_of(parts->variant), sizeof(counter));
    parts->nr_blocks_left = nr_blocks - least(counter, nr_blocks);
    parts->gave_way = parts->nr_blocks_left != 0 && parts->stopped_ns == 0;
    parts->wants_back = false;
    return result;
}

/* ---------- stopping ---------- */

bool fgw_persistent_can_stop(const struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    return parts->variant && parts->variant->mode == FGW_SLICING_PERSISTENT && parts->nr_in_flight != 0;
}

void fgw_persistent_stop(struct fgw_worker *worker)
{
    if (!fgw_persistent_can_stop(worker)) {
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

uint64_t fgw_persistent_stop_once(struct fgw_worker *worker)
{
    if (!fgw_persistent_can_stop(worker)) {
        return 0;
    }
    if (worker->slicing->parts.stopped_ns == 0) {
        fgw_persistent_stop(worker);
    }
    return worker->slicing->parts.stopped_ns;
}

void fgw_persistent_poll(struct fgw_worker *worker)
{
    const struct fgw_parts *parts = &worker->slicing->parts;
    const uint64_t take_back_ns = worker->slicing->settings.take_back_ns;
    if (!fgw_persistent_can_stop(worker)) {
        return;
    }
    if ((worker->slicing->settings.shares_device != 0 && is_room_back(worker)) ||
        (take_back_ns != 0 && fgw_clock_ns() - parts->wanted_ns >= take_back_ns)) {
        fgw_persistent_take_back(worker);
    }
    if (fgw_grant_has(&worker->grantee)) {
        return;
    }
    if (parts->stopped_ns == 0 || fgw_clock_ns() - parts->told_ns >= FGW_STOP_AGAIN_NS) {
        fgw_persistent_stop(worker);
    }
}
