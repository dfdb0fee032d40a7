/*
 * Launches. What is wrong with a launch is said at once; what goes wrong while it runs is said later, and sticks to the
 * context.
 */
#include "code/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/state.h"
#include "code/function.h"
#include "code/tier.h"
#include "code/turn.h"
#include "cuda_api/prototypes.h"
#include "runtime/runtime.h"
#include "stream/capture.h"
#include "stream/queue.h"
#include "stream/stream.h"

#define MAX_GRID_YZ           65535u
#define MAX_BLOCK_Z           64u
#define MIN_FIBER_STACK_BYTES 16384u
#define RUNTIME_STACK_BYTES   16384u /* what barriers, printf and malloc need of a fiber's stack */

struct kernel_command {
    struct sgp_command command;
    struct sgp_grid grid;
    struct CUmod_st *module;
    uint8_t parameters[] __attribute__((aligned(16)));
};

static CUresult kernel_run(struct sgp_command *command)
{
    struct kernel_command *kernel = (struct kernel_command *)command;
    struct sgp_device *device = kernel->grid.context->device;
    const struct sgp_image *image = kernel->module->image;
    struct sgp_turn turn;
    uint64_t begin_ns;
    CUresult result, failure;

    kernel->grid.kernel = sgp_tier_kernel(image->tier, image->module, kernel->grid.kernel);
    sgp_turn_take(&turn, device, &kernel->grid);
    kernel->grid.parameters = kernel->parameters;
    begin_ns = sgp_now_ns();
    result = sgp_state_failure(device->state);
    if (!result) {
        result = sgp_launch_run(&kernel->grid);
    }
    failure = sgp_turn_leave(&turn, &kernel->grid, sgp_now_ns() - begin_ns);
    result = result ? result : failure;
    if (result) {
        sgp_log("kernel", "%s ended with CUDA error %d", kernel->grid.kernel->name, (int)result);
    }
    return result;
}

static void kernel_finish(struct sgp_command *command)
{
    struct kernel_command *kernel = (struct kernel_command *)command;

    sgp_object_release(kernel->module);
    free(kernel);
}

static uint64_t max_resident_blocks(const struct sgp_launch *launch)
{
    uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];

    return SGP_NR_MULTIPROCESSORS *
           (uint64_t)sgp_blocks_per_multiprocessor(launch->kernel, threads, launch->dynamic_shared_bytes);
}

static CUresult launch_check(const struct sgp_launch *launch, const struct sgp_function_settings *settings)
{
    const struct sgp_kernel *kernel = launch->kernel;
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    const uint32_t *required = kernel->required_threads;

    for (int i = 0; i < 3; i++) {
        if (!launch->grid[i] || !launch->block[i] || launch->block[i] > SGP_MAX_BLOCK_THREADS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (launch->grid[0] > INT32_MAX || launch->grid[1] > MAX_GRID_YZ || launch->grid[2] > MAX_GRID_YZ ||
        launch->block[2] > MAX_BLOCK_Z || threads > SGP_MAX_BLOCK_THREADS ||
        (kernel->max_threads && threads > kernel->max_threads)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (required[0] &&
        (required[0] != launch->block[0] || required[1] != launch->block[1] || required[2] != launch->block[2])) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (launch->dynamic_shared_bytes > (uint32_t)settings->max_dynamic_shared_bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (launch->is_cooperative) {
        uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];

        if (blocks > max_resident_blocks(launch)) {
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        }
    }
    return CUDA_SUCCESS;
}

/* The parameters as one buffer: CU_LAUNCH_PARAM_BUFFER_POINTER and its size, in any order. */
static CUresult parameters_from_extra(const struct sgp_kernel *kernel, void **extra, uint8_t *to)
{
    const void *buffer = NULL;
    size_t bytes = 0;

    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = *(const size_t *)extra[1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (kernel->nr_parameters) {
        const struct sgp_parameter *last = &kernel->parameters[kernel->nr_parameters - 1];

        if (!buffer || bytes < last->offset_bytes + last->size_bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (buffer) {
        memcpy(to, buffer, bytes < kernel->parameters_bytes ? bytes : kernel->parameters_bytes);
    }
    return CUDA_SUCCESS;
}

CUresult sgp_launch_pack(const struct sgp_kernel *kernel, void **parameters, void **extra, uint8_t *to)
{
    if (parameters && extra) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (extra) {
        return parameters_from_extra(kernel, extra, to);
    }
    if (kernel->nr_parameters && !parameters) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < kernel->nr_parameters; i++) {
        if (!parameters[i]) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        memcpy(to + kernel->parameters[i].offset_bytes, parameters[i], kernel->parameters[i].size_bytes);
    }
    return CUDA_SUCCESS;
}

static uint64_t fiber_stack_bytes(const struct CUctx_st *context, const struct sgp_kernel *kernel)
{
    uint64_t bytes = kernel->stack_bytes > MIN_FIBER_STACK_BYTES ? kernel->stack_bytes : MIN_FIBER_STACK_BYTES;

    /* The program raised the limit for calls whose depth nobody knows: frames of the host are larger than the GPU's. */
    return bytes + RUNTIME_STACK_BYTES + 4 * context->limits[CU_LIMIT_STACK_SIZE];
}

static CUresult submit(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_launch *launch,
                       void **parameters, void **extra)
{
    struct kernel_command *kernel = calloc(1, sizeof(*kernel) + launch->kernel->parameters_bytes + 16);
    CUresult result;

    if (!kernel) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_launch_pack(launch->kernel, parameters, extra, kernel->parameters);
    if (result) {
        free(kernel);
        return result;
    }
    kernel->command.run = kernel_run;
    kernel->command.finish = kernel_finish;
    kernel->module = launch->module;
    sgp_object_keep(launch->module);
    kernel->grid = (struct sgp_grid){
        .kernel = launch->kernel,
        .context = context,
        .globals = launch->module->globals,
        .dynamic_shared_bytes = launch->dynamic_shared_bytes,
        .stack_bytes = fiber_stack_bytes(context, launch->kernel),
        .is_cooperative = launch->is_cooperative,
        .orders = launch->orders,
        .max_resident = max_resident_blocks(launch),
    };
    memcpy(kernel->grid.grid, launch->grid, sizeof(launch->grid));
    memcpy(kernel->grid.block_dim, launch->block, sizeof(launch->block));
    return sgp_queue_submit(stream, &kernel->command, NULL);
}

CUresult sgp_launch_submit(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_launch *launch,
                           uint8_t *parameters)
{
    size_t bytes = launch->kernel->parameters_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};

    return submit(context, stream, launch, NULL, extra);
}

CUresult sgp_launch_resolve(struct CUctx_st *context, struct sgp_launch *launch)
{
    struct CUfunc_st *function;
    struct sgp_function_settings *settings;
    CUresult result = sgp_function_resolve(context, launch->handle, &function, &settings);

    if (result) {
        return result;
    }
    function->is_loaded = true;
    launch->kernel = function->kernel;
    launch->module = function->module;
    return launch_check(launch, settings);
}

/* Events that a launch is to record: when all blocks have begun, or have said that others may begin. Here when it has
 * ended, which is never too early. */
struct launch_events {
    CUevent events[2];
    uint32_t nr;
};

static CUresult events_check(const struct launch_events *events)
{
    for (uint32_t i = 0; i < events->nr; i++) {
        if (!sgp_object_is(events->events[i], SGP_EVENT)) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (!(events->events[i]->flags & CU_EVENT_DISABLE_TIMING) || events->events[i]->shared) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* CUDA_LAUNCH_BLOCKING, as with NVIDIA's driver; a program may set it before its first launch. */
static bool is_blocking(void)
{
    const char *wanted = getenv("CUDA_LAUNCH_BLOCKING");

    return wanted && *wanted && strcmp(wanted, "0");
}

static CUresult launch_kernel(CUfunction handle, struct sgp_launch *launch, CUstream stream_handle, void **parameters,
                              void **extra, const struct launch_events *events)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = sgp_enter_by(stream_handle, &context);

    if (result) {
        return result;
    }
    launch->handle = handle;
    result = sgp_launch_resolve(context, launch);
    if (!result) {
        result = events_check(events);
    }
    if (!result) {
        result = sgp_stream_resolve(context, stream_handle, &stream);
    }
    if (!result && stream->object.context != context) {
        result = CUDA_ERROR_INVALID_HANDLE; /* a kernel belongs to a context */
    }
    if (result) {
        return sgp_leave(result);
    }
    if (stream->capture) {
        return sgp_leave(events->nr ? CUDA_ERROR_NOT_SUPPORTED
                                    : stream->capture->sink->launch(context, stream, launch, parameters, extra));
    }
    result = submit(context, stream, launch, parameters, extra);
    for (uint32_t i = 0; i < events->nr && !result; i++) {
        result = sgp_event_record(events->events[i], stream);
    }
    result = sgp_leave(result);
    return !result && is_blocking() ? cuStreamSynchronize(stream_handle) : result;
}

static const struct launch_events no_events = {.nr = 0};

SGP_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    struct sgp_launch launch = {
        .grid = {gridDimX, gridDimY, gridDimZ},
        .block = {blockDimX, blockDimY, blockDimZ},
        .dynamic_shared_bytes = sharedMemBytes,
    };

    return launch_kernel(f, &launch, hStream, kernelParams, extra, &no_events);
}

SGP_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                              unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                              unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                              void **kernelParams)
{
    struct sgp_launch launch = {
        .grid = {gridDimX, gridDimY, gridDimZ},
        .block = {blockDimX, blockDimY, blockDimZ},
        .dynamic_shared_bytes = sharedMemBytes,
        .is_cooperative = true,
    };

    return launch_kernel(f, &launch, hStream, kernelParams, NULL, &no_events);
}

/* Attributes that only say how fast are taken and change nothing; those that say what happens must be served or
 * refused. */
static CUresult attribute_apply(struct sgp_launch *launch, struct launch_events *events,
                                const CUlaunchAttribute *attribute)
{
    switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        launch->is_cooperative = attribute->value.cooperative != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (attribute->value.clusterDim.x > 1 || attribute->value.clusterDim.y > 1 ||
            attribute->value.clusterDim.z > 1) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        if (events->nr == 2) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        events->events[events->nr++] = attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                                           ? attribute->value.programmaticEvent.event
                                           : attribute->value.launchCompletionEvent.event;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SGP_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    struct sgp_launch launch;
    struct launch_events events = {.nr = 0};
    CUresult result = CUDA_SUCCESS;

    if (!config || (config->numAttrs && !config->attrs)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    launch = (struct sgp_launch){
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .dynamic_shared_bytes = config->sharedMemBytes,
    };
    for (unsigned int i = 0; i < config->numAttrs && !result; i++) {
        result = attribute_apply(&launch, &events, &config->attrs[i]);
    }
    return result ? result : launch_kernel(f, &launch, config->hStream, kernelParams, extra, &events);
}
