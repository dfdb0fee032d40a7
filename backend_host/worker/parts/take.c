/*
 * Which launches go in parts: what is asked of a launch and of its kernel's variant before the first.
 *
 * Large ones, by the operator's settings. A worker that shares the device with another's work at the same time has all
 * its launches go persistently that the device does not take at once, as blocks that have begun keep their places. One
 * of a kernel that cannot, and that is not large, goes as it would otherwise.
 *
 * A variant that was made is taken into the context by the next launch of its kernel, and for that the driver waits for
 * all that runs. The program might have to do something before it ends, and nobody would listen. So the launch waits
 * in the backlog until all that is on the device has ended; when nothing ends for a second it goes whole.
 */
#include "parts/take.h"

#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "cuda_api/variants.h"
#include "page/outlook.h"
#include "parts/grid.h"
#include "parts/launch.h"
#include "parts/parts.h"
#include "parts/persistent.h"
#include "parts/state.h"
#include "parts/variant.h"
#include "track/state.h"
#include "turn/space_gate.h"

#define FGW_MAX_GRID_X  0x7fffffffu
#define FGW_MAX_GRID_YZ 65535u

/* Attributes that mean for each part what they mean for the whole. */
static enum fgv_whole judge_attributes(const struct fgw_launch *launch)
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

static bool can_persist(const struct fgw_worker *worker, uint64_t nr_blocks)
{
    const struct fgv_driver *driver = &worker->driver;
    return nr_blocks < UINT32_MAX && driver->cuStreamWriteValue64_v2 && driver->cuMemcpyDtoHAsync_v2 &&
           driver->cuMemsetD32Async && driver->cuEventQuery && driver->cuOccupancyMaxActiveBlocksPerMultiprocessor &&
           driver->cuStreamCreate;
}

/* What the program asked of the kernel counts for the variant, too. */
static bool copy_attributes(struct fgw_worker *worker, const struct fgw_handle *handle,
                            const struct fgw_variant *variant)
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

/* Whether a variant would have to be taken into the context, and this is no moment for it. */
static bool must_wait(const struct fgw_worker *worker, const struct fgw_launch *launch)
{
    const struct fgw_kernel *kernel = launch->kernel;
    return !kernel->variant && kernel->why_whole == FGV_WHOLE_NOT && worker->track->nr_unfinished != 0 &&
           !fgw_variant_is_made_beside(worker, kernel);
}

/* Why the launch goes whole. */
static enum fgv_whole judge(struct fgw_worker *worker, const struct fgw_launch *launch)
{
    enum fgv_whole why = judge_attributes(launch);
    if (why == FGV_WHOLE_NOT && (worker->track->nr_gates != 0 || worker->track->behind.nr != 0 ||
                                 (must_wait(worker, launch) && fgw_parts_are_stuck(worker)))) {
        why = FGV_WHOLE_HELD_UP_STREAM;
    }
    return why;
}

static enum fgv_whole begin(struct fgw_worker *worker, const struct fgw_launch *launch, struct fgw_variant *variant,
                            uint64_t nr_blocks, uint64_t stream)
{
    if (!copy_attributes(worker, &launch->handle, variant) ||
        (variant->mode == FGW_SLICING_PERSISTENT && !can_persist(worker, nr_blocks))) {
        return FGV_WHOLE_NOT_LAUNCHED;
    }
    if (variant->is_let_go && worker->track->nr_unfinished != 0) {
        return FGV_WHOLE_HELD_UP_STREAM;
    }
    variant->is_let_go = false;
    worker->slicing->parts = (struct fgw_parts){.variant = variant,
                                                .nr_blocks_left = nr_blocks,
                                                .context = (uint32_t)worker->current->handle,
                                                .stream = stream};
    return FGV_WHOLE_NOT;
}

/* Larger than what the operator lets go at once. */
static bool is_large(const struct fgw_worker *worker, uint64_t nr_blocks)
{
    const struct fgw_slicing_settings *settings = &worker->slicing->settings;
    return settings->mode != FGW_SLICING_OFF && nr_blocks > settings->threshold_blocks;
}

/* Of a worker that shares the device: one that may have more blocks than are there at once. */
static bool may_exceed_device(const struct fgw_worker *worker, uint64_t nr_blocks)
{
    return worker->slicing->settings.shares_device != 0 && nr_blocks > fgw_multiprocessors(worker) &&
           worker->driver.cuOccupancyMaxActiveBlocksPerMultiprocessor;
}

static bool exceeds_device(const struct fgw_worker *worker, const struct fgw_launch *launch, uint64_t nr_blocks)
{
    return nr_blocks >
           (uint64_t)fgw_multiprocessors(worker) * fgw_resident_each(worker, &launch->config, launch->handle.native);
}

/* Whether a device takes it whole: a part of one that none takes might be taken. */
static bool is_a_grid(const uint32_t grid[3])
{
    return grid[0] <= FGW_MAX_GRID_X && grid[1] <= FGW_MAX_GRID_YZ && grid[2] <= FGW_MAX_GRID_YZ;
}

/* It goes as it is, for this reason, unless it `runs` and waits for that at the gate of its space. */
static enum fgw_parts_state go_whole(struct fgw_worker *worker, uint64_t nr_blocks, enum fgv_whole why, bool runs)
{
    if (runs && fgw_space_gate_holds(worker, nr_blocks)) {
        return FGW_PARTS_MORE;
    }
    if (why != FGV_WHOLE_NOT) {
        fgw_count_whole(worker, why);
    }
    return FGW_PARTS_WHOLE;
}

enum fgw_parts_state fgw_parts_take(struct fgw_worker *worker, const struct fgw_request *request, bool runs)
{
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    uint64_t nr_blocks = fgw_grid_nr_blocks(fixed->grid);
    struct fgw_launch launch;
    worker->slicing->parts.is_awaited = false;
    const bool goes_anyhow = is_large(worker, nr_blocks);
    const bool is_small = !goes_anyhow && !may_exceed_device(worker, nr_blocks);
    if (!is_a_grid(fixed->grid) || !worker->current || worker->current->fault != CUDA_SUCCESS ||
        (!is_small && fgw_launch_read(worker, request, &launch) != CUDA_SUCCESS)) {
        fgw_space_gate_end(worker);
        return FGW_PARTS_WHOLE; /* the handler says what is wrong with it */
    }
    if (is_small || (!goes_anyhow && !exceeds_device(worker, &launch, nr_blocks))) {
        return go_whole(worker, nr_blocks, FGV_WHOLE_NOT, runs);
    }
    enum fgv_whole why = runs ? judge(worker, &launch) : FGV_WHOLE_GRAPH;
    if (why == FGV_WHOLE_NOT && must_wait(worker, &launch)) {
        worker->slicing->parts = (struct fgw_parts){
            .is_awaited = true, .context = (uint32_t)worker->current->handle, .stream = fixed->stream};
        return FGW_PARTS_MORE;
    }
    struct fgw_variant *variant =
        why == FGV_WHOLE_NOT ? fgw_variant_of(worker, &launch.handle, launch.kernel, &why) : NULL;
    const bool is_for_this = variant && (goes_anyhow || variant->mode == FGW_SLICING_PERSISTENT);
    if (is_for_this) {
        why = begin(worker, &launch, variant, nr_blocks, fixed->stream);
    }
    if (is_for_this && why == FGV_WHOLE_NOT) {
        fgw_space_gate_end(worker);
        return FGW_PARTS_TAKEN;
    }
    if (runs && !fgw_grant_has(&worker->grantee)) {
        return FGW_PARTS_MORE; /* the grant was given back to make a variant, and there is none: in its next turn */
    }
    return go_whole(worker, nr_blocks, why, runs);
}
