/*
 * Launches. What the driver would refuse at once is refused here, from the cached attributes of function and device;
 * the rest is one record in the ring and no waiting: no lock, no system call, no allocation, one look-up.
 */
#include "code/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/current.h"
#include "call/device.h"
#include "code/blocking.h"
#include "code/function.h"
#include "code/timeline.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "managed/area.h"

struct launch {
    struct fgv_function *function;
    uint64_t stream;
    const CUlaunchAttribute *attributes;
    uint32_t nr_attributes;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t flags;
};

static CUresult function_find(struct launch *launch, CUfunction function)
{
    uint64_t handle = (uint64_t)(uintptr_t)function;
    launch->function = fgv_handle_object(FGV_HANDLE_FUNCTION, handle);
    if (__builtin_expect(!launch->function, 0)) {
        launch->function = fgv_handle_object(FGV_HANDLE_KERNEL, handle);
        launch->flags |= FGV_LAUNCH_FLAG_KERNEL;
    }
    return !launch->function ? CUDA_ERROR_INVALID_HANDLE : fgv_function_know(launch->function);
}

/* The checks, and the codes, of the driver. */
static CUresult shape_check(const struct launch *launch)
{
    const int32_t *device = fgv_device_facts(fgv_thread.context->ordinal)->attributes;
    uint64_t nr_threads = 1;
    for (uint32_t i = 0; i < 3; i++) {
        if (launch->grid[i] - 1 >= (uint32_t)device[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] ||
            launch->block[i] - 1 >= (uint32_t)device[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]) {
            return CUDA_ERROR_INVALID_VALUE; /* zero too */
        }
        nr_threads *= launch->block[i];
    }
    return nr_threads > (uint32_t)device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ? CUDA_ERROR_INVALID_VALUE
                                                                                    : CUDA_SUCCESS;
}

static bool is_cooperative(const struct launch *launch)
{
    for (uint32_t i = 0; i < launch->nr_attributes; i++) {
        if (launch->attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
            launch->attributes[i].value.cooperative != 0) {
            return true;
        }
    }
    return (launch->flags & FGV_LAUNCH_FLAG_COOPERATIVE) != 0;
}

/* More threads or shared memory than the function's attributes allow, as far as they are known here: the driver says
 * what is wrong with that, and sometimes nothing is. Kernels of cuFFT take more shared memory. */
static bool is_oversized(const struct launch *launch)
{
    const int32_t *most = launch->function->attributes;
    const uint32_t nr_threads = launch->block[0] * launch->block[1] * launch->block[2];
    return nr_threads > (uint32_t)most[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ||
           launch->shared_bytes > (uint32_t)most[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
}

/* Larger ones are for kernels that say so, and not each device has them: the driver knows. */
#define MAX_PORTABLE_CLUSTER 8u

static bool is_doubtful_cluster(const struct launch *launch, const CUlaunchAttribute *attribute)
{
    const unsigned int cluster[3] = {attribute->value.clusterDim.x, attribute->value.clusterDim.y,
                                     attribute->value.clusterDim.z};
    uint64_t nr_blocks = 1;
    for (uint32_t i = 0; i < 3; i++) {
        const int32_t required = launch->function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
        if (cluster[i] == 0 || launch->grid[i] % cluster[i] != 0 ||
            (required > 0 && (uint32_t)required != cluster[i])) {
            return true;
        }
        nr_blocks = nr_blocks > MAX_PORTABLE_CLUSTER ? nr_blocks : nr_blocks * cluster[i];
    }
    return nr_blocks > MAX_PORTABLE_CLUSTER;
}

/* Of a kernel that has to have clusters: their size is its own, or the launch's. */
static bool lacks_cluster(const struct launch *launch)
{
    const int32_t *kernel = launch->function->attributes;
    bool is_given = kernel[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] == 0;
    for (uint32_t i = 0; i < launch->nr_attributes; i++) {
        is_given |= launch->attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    }
    for (uint32_t i = 0; i < 3; i++) {
        const int32_t required = kernel[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
        if (required > 0 && launch->grid[i] % (uint32_t)required != 0) {
            return true;
        }
        is_given |= required > 0;
    }
    return !is_given;
}

/* Attributes that the driver may refuse for their value, or does not know. */
static bool is_doubtful(const struct launch *launch)
{
    for (uint32_t i = 0; i < launch->nr_attributes; i++) {
        const CUlaunchAttribute *attribute = &launch->attributes[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE || (unsigned)attribute->id == 15 ||
            (unsigned)attribute->id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING) {
            return true; /* CUDA 13.0 has none of these */
        }
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
            return true; /* an attribute of streams */
        }
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
            attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            return true; /* not every event will do */
        }
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && is_doubtful_cluster(launch, attribute)) {
            return true;
        }
    }
    return lacks_cluster(launch);
}

/* Clusters of more than a block need a device that has them. */
static CUresult cluster_check(const struct launch *launch)
{
    const int32_t *device = fgv_device_facts(fgv_thread.context->ordinal)->attributes;
    for (uint32_t i = 0; i < launch->nr_attributes; i++) {
        const CUlaunchAttribute *attribute = &launch->attributes[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
            (attribute->value.clusterDim.x > 1 || attribute->value.clusterDim.y > 1 ||
             attribute->value.clusterDim.z > 1) &&
            device[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] != 1) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}

/* The blocks of a cooperative launch must all run at once. How many do is asked once for each shape of a block. */
static CUresult cooperative_check(const struct launch *launch, CUfunction function)
{
    const int32_t *device = fgv_device_facts(fgv_thread.context->ordinal)->attributes;
    const uint32_t *grid = launch->grid, *block = launch->block;
    int nr_blocks = 0;
    if (!is_cooperative(launch)) {
        return CUDA_SUCCESS;
    }
    CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &nr_blocks, function, (int)(block[0] * block[1] * block[2]), launch->shared_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint64_t most = (uint64_t)(uint32_t)nr_blocks * (uint32_t)device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    /* A grid has less than 2^31 blocks in x and less than 2^16 in y and z. */
    return (uint64_t)grid[0] * grid[1] * grid[2] > most ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

CUresult fgv_extra_read(void **extra, uint32_t wanted_bytes, const void **buffer)
{
    size_t bytes = 0;
    *buffer = NULL;
    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            *buffer = extra[1];
        } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1]) {
            bytes = *(const size_t *)extra[1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return wanted_bytes > 0 && (!*buffer || bytes < wanted_bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void fgv_parameters_touch(const struct fgv_function *function, void **parameters, const void *buffer)
{
    if (fgv_areas_were_made() && buffer && function->parameter_bytes != 0) {
        (void)*(const volatile uint8_t *)buffer;
        (void)((const volatile uint8_t *)buffer)[function->parameter_bytes - 1];
    }
    for (uint32_t i = 0; fgv_areas_were_made() && parameters && i < function->nr_parameters; i++) {
        (void)*(const volatile uint8_t *)parameters[i];
        (void)((const volatile uint8_t *)parameters[i])[function->parameters[i].bytes - 1];
    }
}

void fgv_parameters_pack(uint8_t *packed, const struct fgv_function *function, void **parameters)
{
    for (uint32_t i = 0; i < function->nr_parameters; i++) {
        const struct fgv_parameter *parameter = &function->parameters[i];
        uint8_t *place = packed + parameter->offset_bytes;
        /* Nearly all are words; a copy of known length needs no call. */
        if (parameter->bytes == 8) {
            memcpy(place, parameters[i], 8);
        } else if (parameter->bytes == 4) {
            memcpy(place, parameters[i], 4);
        } else {
            memcpy(place, parameters[i], parameter->bytes);
        }
    }
}

/* Where any of them may lie in managed memory: packed, to be freed. The program has that no more once a call is begun,
 * and nothing can be brought back before it is sent. NULL: none does, or there is no memory. */
static uint8_t *parameters_aside(const struct fgv_function *function, void **parameters, const void *buffer)
{
    bool is_managed = buffer && fgv_areas_may_have(buffer);
    for (uint32_t i = 0; parameters && i < function->nr_parameters; i++) {
        is_managed |= fgv_areas_may_have(parameters[i]);
    }
    uint8_t *packed = is_managed ? malloc(function->parameter_bytes + 1) : NULL;
    if (packed && buffer) {
        memcpy(packed, buffer, function->parameter_bytes);
    } else if (packed) {
        fgv_parameters_pack(packed, function, parameters);
    }
    return packed;
}

static CUresult launch_send(const struct launch *launch, void **parameters, void **extra)
{
    const struct fgv_function *function = launch->function;
    const void *buffer = NULL;
    if (parameters && extra) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (extra) {
        CUresult result = fgv_extra_read(extra, function->parameter_bytes, &buffer);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    } else if (!parameters && function->nr_parameters > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint8_t *aside = NULL;
    if (__builtin_expect(fgv_areas_were_made(), 0)) {
        aside = parameters_aside(function, parameters, buffer);
        buffer = aside ? aside : buffer;
    }
    const uint32_t attribute_bytes = launch->nr_attributes * (uint32_t)sizeof(CUlaunchAttribute);
    struct fgv_call call;
    struct fgv_request_cuLaunchKernel *request =
        fgv_call_begin(&call, FGV_CALL_cuLaunchKernel, sizeof(*request), function->parameter_bytes + attribute_bytes);
    if (__builtin_expect(!request, 0)) {
        free(aside);
        return call.error;
    }
    request->function = function->handle;
    request->stream = launch->stream;
    memcpy(request->grid, launch->grid, sizeof(request->grid));
    memcpy(request->block, launch->block, sizeof(request->block));
    request->shared_bytes = launch->shared_bytes;
    request->nr_parameter_bytes = function->parameter_bytes;
    request->flags = launch->flags;
    request->nr_attributes = launch->nr_attributes;
    if (buffer) {
        memcpy(call.payload, buffer, function->parameter_bytes);
    } else if (parameters) {
        fgv_parameters_pack(call.payload, function, parameters);
    }
    free(aside);
    if (attribute_bytes != 0) {
        memcpy(call.payload + function->parameter_bytes, launch->attributes, attribute_bytes);
    }
    /* What may be refused waits for the answer. */
    return __builtin_expect(is_oversized(launch), 0) || __builtin_expect(is_doubtful(launch), 0)
               ? fgv_call_wait(&call, NULL, 0)
               : fgv_call_post(&call);
}

static CUresult launch_timed(const struct launch *launch, CUstream stream, void **parameters, void **extra)
{
    struct fgv_timed timed;
    fgv_timeline_begin(&timed, stream);
    const CUresult result = launch_send(launch, parameters, extra);
    const char *name = launch->function->name ? launch->function->name : "?";
    fgv_timeline_end(&timed, stream, result == CUDA_SUCCESS ? name : NULL);
    return result;
}

static CUresult launch_run(struct launch *launch, CUfunction function, CUstream stream, void **parameters, void **extra)
{
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = function_find(launch, function);
    }
    if (result == CUDA_SUCCESS) {
        result = shape_check(launch);
    }
    if (result == CUDA_SUCCESS && (launch->flags | launch->nr_attributes) != 0) {
        result = cooperative_check(launch, function);
    }
    if (result == CUDA_SUCCESS && launch->nr_attributes != 0) {
        result = cluster_check(launch);
    }
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        return result;
    }
    launch->stream = fgv_stream_wire(stream);
    if (__builtin_expect(launch->stream == FGV_STREAM_INVALID, 0)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    result = __builtin_expect(fgv_timeline_is_on, 0) ? launch_timed(launch, stream, parameters, extra)
                                                     : launch_send(launch, parameters, extra);
    return fgv_launch_settle(result, stream);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    struct launch launch = {.grid = {gridDimX, gridDimY, gridDimZ},
                            .block = {blockDimX, blockDimY, blockDimZ},
                            .shared_bytes = sharedMemBytes};
    return launch_run(&launch, f, hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
    struct launch launch = {.grid = {gridDimX, gridDimY, gridDimZ},
                            .block = {blockDimX, blockDimY, blockDimZ},
                            .shared_bytes = sharedMemBytes,
                            .flags = FGV_LAUNCH_FLAG_COOPERATIVE};
    return launch_run(&launch, f, hStream, kernelParams, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (!config || config->numAttrs > FGV_MAX_LAUNCH_ATTRIBUTES || (config->numAttrs > 0 && !config->attrs)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct launch launch = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                            .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                            .shared_bytes = config->sharedMemBytes,
                            .attributes = config->attrs,
                            .nr_attributes = config->numAttrs};
    return launch_run(&launch, f, config->hStream, kernelParams, extra);
}
