/*
 * A launch in parts. Its request stays at the head of the backlog, and whatever keeps its place behind it waits there
 * too, so that the order of a stream is what it was; between two parts stands the same question as between two
 * launches: whether the turn allows one more.
 *
 * Boxes: rows of the grid, parts of a row, or planes, in the order of the blocks. Each has at least as many blocks as
 * the host's settings say, and as many more as it takes to keep the device busy for `part_ns`, by what the kernel's
 * blocks took so far. Two are in flight, so that the device has the next one when it ends one; of long ones one, which
 * costs less than what a newcomer would wait for the second.
 *
 * Persistently: one launch of as many blocks as fit the device. When the turn is over it is told to stop; when it has
 * ended its counter says whether it is to go on.
 *
 * A stream may be held up (by a value that it waits for, by a host function of the guest), maybe until something comes
 * that stands behind this launch in the backlog. Then it goes whole. A kernel before it may wait for the guest as well,
 * which nobody can see: when nothing has ended for a second and something else is on the device, all that is left is
 * let go at once.
 *
 * Wrong when: the program has other streams with work that would run beside this kernel. It waits until the last part
 * is out.
 */
#include <string.h>

#include "grid.h"
#include "launch.h"
#include "worker.h"

/* A part of this length goes alone: the pause behind it is less than a hundredth of it. */
#define FGV_LONG_PART_NS        UINT64_C(2000000)
#define FGV_ALL_MULTIPROCESSORS UINT32_MAX
#define FGV_MAX_GRID_X          0x7fffffffu
#define FGV_MAX_GRID_YZ         65535u
#define FGV_LET_GO_NS           UINT64_C(1000000000)
#define FGV_STOP_AGAIN_NS       UINT64_C(1000000) /* a stop that came before the kernel's start was overwritten */

/* What the variants' descriptors hold; see cuda_api/ptx/variants. */
struct box_descriptor {
    uint32_t first[3], grid[3];
};
struct persistent_descriptor {
    uint64_t nr_blocks;
    uint32_t grid[3], first_multiprocessor, end_multiprocessor;
    uint32_t reserved;
};
_Static_assert(sizeof(struct box_descriptor) == 24 && sizeof(struct persistent_descriptor) == 32,
               "as the PTX has them");

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t part_ns(const struct fgv_variant *variant, uint64_t nr_blocks)
{
    return (uint64_t)((double)nr_blocks * (double)variant->block_ns_1024 / 1024.0);
}

static uint64_t wanted_blocks(const struct fgv_worker *worker, const struct fgv_variant *variant)
{
    if (worker->parts.is_let_go) {
        return worker->parts.nr_blocks_left;
    }
    uint64_t enough = variant->block_ns_1024 == 0 ? 0 : worker->slicing.part_ns * 1024 / variant->block_ns_1024;
    uint64_t wanted = worker->slicing.least_blocks > enough ? worker->slicing.least_blocks : enough;
    return wanted > 0 ? wanted : 1;
}

/* Attributes that mean for each part what they mean for the whole. */
static enum fgv_whole judge_attributes(const struct fgv_launch *launch)
{
    for (uint32_t i = 0; i < launch->config.numAttrs; i++) {
        switch (launch->attributes[i].id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            break;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            if (launch->attributes[i].value.cooperative) {
                return FGV_WHOLE_COOPERATIVE;
            }
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
            return FGV_WHOLE_CLUSTERS;
        default:
            return FGV_WHOLE_LAUNCH_ATTRIBUTE;
        }
    }
    return FGV_WHOLE_NOT;
}

static bool can_persist(const struct fgv_worker *worker, uint64_t nr_blocks)
{
    const struct fgv_driver *driver = &worker->driver;
    return nr_blocks < UINT32_MAX && driver->cuStreamWriteValue64_v2 && driver->cuMemcpyDtoHAsync_v2 &&
           driver->cuOccupancyMaxActiveBlocksPerMultiprocessor && driver->cuStreamCreate;
}

/* What the program asked of the kernel counts for the variant, too. */
static bool copy_attributes(struct fgv_worker *worker, const struct fgv_handle *handle,
                            const struct fgv_variant *variant)
{
    static const CUfunction_attribute carried[] = {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                   CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
    const struct fgv_driver *driver = &worker->driver;
    if (!driver->cuFuncGetAttribute || !driver->cuFuncSetAttribute) {
        return true;
    }
    for (uint32_t i = 0; i < sizeof(carried) / sizeof(carried[0]); i++) {
        int wanted = 0;
        int has = 0;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (handle->kind != FGV_HANDLE_KERNEL) {
            result = driver->cuFuncGetAttribute(&wanted, carried[i], handle->native);
        } else if (driver->cuKernelGetAttribute) {
            result = driver->cuKernelGetAttribute(&wanted, carried[i], handle->native, worker->device);
        }
        if (result == CUDA_SUCCESS && driver->cuFuncGetAttribute(&has, carried[i], variant->function) == CUDA_SUCCESS &&
            has != wanted && driver->cuFuncSetAttribute(variant->function, carried[i], wanted) != CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

static enum fgv_whole begin(struct fgv_worker *worker, const struct fgv_launch *launch, uint64_t nr_blocks,
                            uint64_t stream)
{
    enum fgv_whole why = judge_attributes(launch);
    if (why == FGV_WHOLE_NOT && (worker->nr_gates != 0 || worker->hosts.nr != 0)) {
        why = FGV_WHOLE_HELD_UP;
    }
    if (why != FGV_WHOLE_NOT) {
        return why;
    }
    struct fgv_variant *variant = fgv_variant_of(worker, launch->handle, &why);
    if (!variant) {
        return why;
    }
    if (!copy_attributes(worker, launch->handle, variant) ||
        (variant->mode == FGV_SLICING_PERSISTENT && !can_persist(worker, nr_blocks))) {
        return FGV_WHOLE_NOT_LAUNCHED;
    }
    if (variant->is_let_go && worker->nr_unfinished != 0) {
        return FGV_WHOLE_HELD_UP;
    }
    variant->is_let_go = false;
    worker->parts = (struct fgv_parts){.variant = variant, .nr_blocks_left = nr_blocks, .stream = stream};
    return FGV_WHOLE_NOT;
}

static void count_whole(struct fgv_worker *worker, enum fgv_whole why)
{
    _Atomic uint32_t *counter = &worker->slot->nr_whole[(uint32_t)why < FGV_NR_WHOLE ? (uint32_t)why : 0];
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Whether a device takes it whole: a part of one that none takes might be taken. */
static bool is_a_grid(const uint32_t grid[3])
{
    return grid[0] <= FGV_MAX_GRID_X && grid[1] <= FGV_MAX_GRID_YZ && grid[2] <= FGV_MAX_GRID_YZ;
}

bool fgv_parts_take(struct fgv_worker *worker, const struct fgv_request *request, bool runs)
{
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    uint64_t nr_blocks = fgv_grid_nr_blocks(fixed->grid);
    struct fgv_launch launch;
    if (worker->slicing.mode == FGV_SLICING_OFF || nr_blocks <= worker->slicing.threshold_blocks ||
        !is_a_grid(fixed->grid) || !worker->current || worker->current->fault != CUDA_SUCCESS ||
        fgv_launch_read(worker, request, &launch) != CUDA_SUCCESS) {
        return false; /* the handler says what is wrong with it */
    }
    enum fgv_whole why = runs ? begin(worker, &launch, nr_blocks, fixed->stream) : FGV_WHOLE_GRAPH;
    if (why != FGV_WHOLE_NOT) {
        count_whole(worker, why);
    }
    return why == FGV_WHOLE_NOT;
}

/* Before the first part: constants as they are now. */
static CUresult fill_constants(struct fgv_worker *worker, CUstream stream)
{
    const struct fgv_variant *variant = worker->parts.variant;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < variant->nr_constants && result == CUDA_SUCCESS; i++) {
        const struct fgv_variant_constant *constant = &variant->constants[i];
        result = worker->driver.cuMemcpyDtoDAsync_v2
                     ? worker->driver.cuMemcpyDtoDAsync_v2(constant->to, constant->from, constant->bytes, stream)
                     : CUDA_ERROR_NOT_SUPPORTED;
    }
    return result;
}

/* Submits a part, as serve.c does any work. */
static CUresult submit(struct fgv_worker *worker, const struct fgv_service *service, struct fgv_stream *stream,
                       struct fgv_launch *launch, const uint32_t grid[3], const void *descriptor,
                       size_t descriptor_bytes, uint64_t nr_blocks)
{
    struct fgv_parts *parts = &worker->parts;
    CUresult result = CUDA_SUCCESS;
    memset(launch->parameters + launch->parameter_bytes, 0,
           parts->variant->descriptor_offset - launch->parameter_bytes);
    memcpy(launch->parameters + parts->variant->descriptor_offset, descriptor, descriptor_bytes);
    launch->parameter_bytes = parts->variant->descriptor_offset + descriptor_bytes;
    launch->config.gridDimX = grid[0];
    launch->config.gridDimY = grid[1];
    launch->config.gridDimZ = grid[2];
    fgv_host_before(worker, service, stream);
    fgv_gate_submit(worker, stream);
    if (!parts->has_begun) {
        result = fill_constants(worker, launch->config.hStream);
    }
    uint64_t submitted_ns = fgv_clock_ns();
    if (result == CUDA_SUCCESS) {
        result = fgv_launch_submit(worker, launch, parts->variant->function);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgv_sync_submitted(worker, stream);
    fgv_stream_mark(worker, stream);
    if (!parts->is_let_go) {
        parts->in_flight[parts->nr_in_flight++] =
            (struct fgv_part){.seq = stream->last_seq, .nr_blocks = nr_blocks, .submitted_ns = submitted_ns};
    }

    parts->has_begun = true;
    fgv_count(&worker->slot->nr_parts, 1);
    return CUDA_SUCCESS;
}

static CUresult submit_box(struct fgv_worker *worker, const struct fgv_service *service, struct fgv_stream *stream,
                           struct fgv_launch *launch)
{
    struct fgv_parts *parts = &worker->parts;
    const uint32_t grid[3] = {launch->config.gridDimX, launch->config.gridDimY, launch->config.gridDimZ};
    struct fgv_grid_box box = fgv_grid_next_box(parts->next, grid, wanted_blocks(worker, parts->variant));
    uint64_t nr_blocks = fgv_grid_nr_blocks(box.size);
    struct box_descriptor descriptor;
    memcpy(descriptor.first, box.first, sizeof(descriptor.first));
    memcpy(descriptor.grid, grid, sizeof(descriptor.grid));
    CUresult result = submit(worker, service, stream, launch, box.size, &descriptor, sizeof(descriptor), nr_blocks);
    if (result == CUDA_SUCCESS) {
        fgv_grid_advance(parts->next, grid, &box);
        parts->nr_blocks_left -= least(nr_blocks, parts->nr_blocks_left);
    }
    return result;
}

/* As many blocks as fit the device, and no more than there are. */
static uint32_t resident_blocks(struct fgv_worker *worker, const struct fgv_launch *launch, uint64_t nr_blocks)
{
    const struct fgv_driver *driver = &worker->driver;
    const CUlaunchConfig *config = &launch->config;
    int nr_each = 0;
    int nr_multiprocessors = 0;
    driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &nr_each, worker->parts.variant->function, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
        config->sharedMemBytes);
    driver->cuDeviceGetAttribute(&nr_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, worker->device);
    uint64_t nr = nr_each > 0 && nr_multiprocessors > 0 ? (uint64_t)nr_each * (uint64_t)nr_multiprocessors : 1;
    return (uint32_t)least(nr, nr_blocks);
}

/* One that is let go begins where the one before it in the stream will have stopped. */
static CUresult set_state(struct fgv_worker *worker, CUstream stream, uint64_t counter)
{
    CUdeviceptr state = worker->parts.variant->state;
    uint64_t run_blocks = worker->parts.is_let_go ? 0 : worker->slicing.run_blocks;
    CUresult result =
        worker->parts.is_let_go && worker->parts.nr_in_flight != 0
            ? CUDA_SUCCESS
            : worker->driver.cuStreamWriteValue64_v2(stream, state, counter, CU_STREAM_WRITE_VALUE_DEFAULT);

    return result != CUDA_SUCCESS
               ? result
               : worker->driver.cuStreamWriteValue64_v2(stream, state + sizeof(uint64_t),
                                                        run_blocks != 0 ? counter + run_blocks : UINT64_MAX,
                                                        CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult submit_persistent(struct fgv_worker *worker, const struct fgv_service *service,
                                  struct fgv_stream *stream, struct fgv_launch *launch)
{
    struct fgv_parts *parts = &worker->parts;
    const CUlaunchConfig *config = &launch->config;
    struct persistent_descriptor descriptor = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                               .end_multiprocessor = FGV_ALL_MULTIPROCESSORS};
    descriptor.nr_blocks = fgv_grid_nr_blocks(descriptor.grid);
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

/* A stream of the worker's own in the current context, beside those of the guest: for what must not wait behind them.
 */
static CUstream side_stream(struct fgv_worker *worker)
{
    struct fgv_context *context = worker->current;
    if (!context->side_stream &&
        worker->driver.cuStreamCreate(&context->side_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        context->side_stream = NULL;
    }
    return context->side_stream;
}

/* A persistent kernel has ended: how far it came. */
static CUresult read_counter(struct fgv_worker *worker, uint64_t nr_blocks)
{
    struct fgv_parts *parts = &worker->parts;
    uint64_t counter = 0;
    CUstream stream = side_stream(worker);
    CUresult result =
        stream ? worker->driver.cuMemcpyDtoHAsync_v2(&counter, parts->variant->state, sizeof(counter), stream)
               : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuStreamSynchronize(stream);
    }
    parts->nr_blocks_left = nr_blocks - least(counter, nr_blocks);
    return result;
}

/* What a box took tells how large the next ones are to be. */
static void learn(struct fgv_parts *parts, const struct fgv_part *part, uint64_t now_ns)
{
    struct fgv_variant *variant = parts->variant;
    uint64_t from_ns = part->submitted_ns > parts->done_ns ? part->submitted_ns : parts->done_ns;
    uint64_t sample = now_ns > from_ns ? (uint64_t)((double)(now_ns - from_ns) * 1024.0 / (double)part->nr_blocks) : 0;
    sample = sample > 0 ? sample : 1;
    variant->block_ns_1024 = variant->block_ns_1024 == 0 ? sample : (variant->block_ns_1024 * 3 + sample) / 4;
}

/* Takes the parts that have ended out of those in flight. */
static CUresult collect(struct fgv_worker *worker, const struct fgv_stream *stream, uint64_t nr_blocks)
{
    struct fgv_parts *parts = &worker->parts;
    CUresult result = stream->context->fault;
    while (parts->nr_in_flight != 0 && (result != CUDA_SUCCESS || stream->done_seq >= parts->in_flight[0].seq)) {
        uint64_t now_ns = fgv_clock_ns();
        if (parts->variant->mode == FGV_SLICING_BOXES) {
            learn(parts, &parts->in_flight[0], now_ns);
        } else if (result == CUDA_SUCCESS) {
            result = read_counter(worker, nr_blocks);
        }
        parts->done_ns = now_ns;
        memmove(&parts->in_flight[0], &parts->in_flight[1], (parts->nr_in_flight - 1) * sizeof(parts->in_flight[0]));
        parts->nr_in_flight--;
    }
    return result;
}

static bool has_room(const struct fgv_worker *worker)
{
    const struct fgv_parts *parts = &worker->parts;
    if (parts->is_let_go) {
        return true;
    }
    if (parts->variant->mode == FGV_SLICING_PERSISTENT) {
        return parts->nr_in_flight == 0;
    }

    uint64_t next_ns = part_ns(parts->variant, wanted_blocks(worker, parts->variant));
    bool is_known = parts->variant->block_ns_1024 != 0;
    return parts->nr_in_flight < (is_known && next_ns < FGV_LONG_PART_NS ? FGV_MAX_PARTS_IN_FLIGHT : 1);
}

/* Of a persistent kernel the last block may not have been taken while it runs. */
static bool is_out(const struct fgv_parts *parts)
{
    return parts->has_begun && parts->nr_blocks_left == 0 &&
           (parts->variant->mode != FGV_SLICING_PERSISTENT || parts->nr_in_flight == 0);
}

/* The variant takes more of the device than the kernel does: it is not tried again. */
static void give_up(struct fgv_worker *worker, const struct fgv_launch *launch)
{
    struct fgv_kernel *kernel = launch->handle->object;
    fgv_variant_drop(worker, kernel->variant);
    kernel->variant = NULL;
    kernel->why_whole = FGV_WHOLE_NOT_LAUNCHED;
    count_whole(worker, FGV_WHOLE_NOT_LAUNCHED);
}

static CUresult submit_part(struct fgv_worker *worker, const struct fgv_service *service,
                            const struct fgv_request *request, struct fgv_stream *stream, struct fgv_launch *launch)
{
    CUresult result = fgv_launch_read(worker, request, launch);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return worker->parts.variant->mode == FGV_SLICING_PERSISTENT ? submit_persistent(worker, service, stream, launch)
                                                                 : submit_box(worker, service, stream, launch);
}

/* What is on the device beside the parts does not end. */
static bool is_held_up(const struct fgv_worker *worker)
{
    return worker->nr_unfinished > worker->parts.nr_in_flight &&
           fgv_clock_ns() - worker->last_finish_ns > FGV_LET_GO_NS;
}

enum fgv_parts_state fgv_parts_submit(struct fgv_worker *worker, const struct fgv_service *service,
                                      const struct fgv_request *request, CUresult *result)
{
    struct fgv_parts *parts = &worker->parts;
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    struct fgv_stream *stream = fgv_stream_find(worker, fixed->stream);
    struct fgv_launch launch;
    *result = stream ? collect(worker, stream, fgv_grid_nr_blocks(fixed->grid)) : CUDA_ERROR_INVALID_HANDLE;
    parts->is_let_go |= is_held_up(worker);
    while (*result == CUDA_SUCCESS && !is_out(parts)) {
        if (!has_room(worker) || !fgv_turn_has_room(worker) || !fgv_turn_begin(worker) ||
            (fgv_turn_is_deep(worker) && !fgv_turn_fits_stream(worker, stream))) {
            return FGV_PARTS_MORE;
        }
        *result = submit_part(worker, service, request, stream, &launch);
        if (*result != CUDA_SUCCESS && !parts->has_begun && !fgv_is_sticky(*result)) {
            give_up(worker, &launch);
            return FGV_PARTS_WHOLE;
        }
    }
    fgv_count(&worker->slot->nr_sliced, 1);
    *parts = (struct fgv_parts){0};
    return FGV_PARTS_OUT;
}

bool fgv_parts_can_stop(const struct fgv_worker *worker)
{
    const struct fgv_parts *parts = &worker->parts;
    return parts->variant && parts->variant->mode == FGV_SLICING_PERSISTENT && parts->nr_in_flight != 0;
}

void fgv_parts_stop(struct fgv_worker *worker)
{
    if (!fgv_parts_can_stop(worker)) {
        return;
    }
    fgv_context_make_current(worker, worker->parts.variant->context);
    CUstream stream = side_stream(worker);
    worker->parts.stopped_ns = fgv_clock_ns();
    if (stream) {
        worker->driver.cuStreamWriteValue64_v2(stream, worker->parts.variant->state + sizeof(uint64_t), 0,
                                               CU_STREAM_WRITE_VALUE_DEFAULT);
    }
}

void fgv_parts_poll(struct fgv_worker *worker)
{
    const struct fgv_parts *parts = &worker->parts;
    if (!fgv_parts_can_stop(worker) || fgv_grant_has(&worker->grantee)) {
        return;
    }
    if (parts->stopped_ns == 0 || fgv_clock_ns() - parts->stopped_ns >= FGV_STOP_AGAIN_NS) {
        fgv_parts_stop(worker);
    }
}

bool fgv_parts_answers(const struct fgv_worker *worker, const struct fgv_request *request)
{
    const struct fgv_request_cuStreamQuery *fixed = request->fixed;
    return worker->parts.variant && request->header->call == FGV_CALL_cuStreamQuery &&
           fixed->hStream == worker->parts.stream &&
           (uint32_t)worker->parts.variant->context->handle == request->header->context;
}
