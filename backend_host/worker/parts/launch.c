/*
 * Kernel launches. The parameters come packed as the kernel lays them out, so they go to the driver as one buffer;
 * their length must be the kernel's own, or the driver would read beyond what was sent.
 *
 * Launch attributes are let through by name. Those that hold an event hold the guest's number of it, which becomes the
 * driver's handle here; those that make a kernel node updatable from the device hand out driver pointers and are
 * refused.
 */
#include "parts/launch.h"

#include <string.h>

#include "base/count.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "client/service.h"
#include "client/state.h"
#include "client/taken.h"
#include "page/layout.h"

static CUresult translate_event(struct fgw_worker *worker, CUevent *event)
{
    void *native;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_EVENT, (uint64_t)(uintptr_t)*event, &native);
    *event = result == CUDA_SUCCESS ? native : NULL;
    return result;
}

CUresult fgw_attributes_translate(struct fgw_worker *worker, CUlaunchAttribute *attributes, uint32_t nr)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < nr && result == CUDA_SUCCESS; i++) {
        switch (attributes[i].id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            result = translate_event(worker, &attributes[i].value.programmaticEvent.event);
            break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            result = translate_event(worker, &attributes[i].value.launchCompletionEvent.event);
            break;
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE; /* as a driver of CUDA 13.0 */
        }
    }
    return result;
}

CUresult fgw_launch_submit(struct fgw_worker *worker, struct fgw_launch *launch, CUfunction function)
{
    CUlaunchConfig *config = &launch->config;
    void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch->parameters, CU_LAUNCH_PARAM_BUFFER_SIZE,
                      &launch->parameter_bytes, CU_LAUNCH_PARAM_END};
    void **extra = launch->parameter_bytes != 0 ? buffer : NULL;
    if (config->numAttrs != 0) {
        return worker->driver.cuLaunchKernelEx ? worker->driver.cuLaunchKernelEx(config, function, NULL, extra)
                                               : CUDA_ERROR_NOT_SUPPORTED;
    }
    return worker->driver.cuLaunchKernel
               ? worker->driver.cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                                               config->blockDimX, config->blockDimY, config->blockDimZ,
                                               config->sharedMemBytes, config->hStream, NULL, extra)
               : CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_well_formed(const struct fgw_request *request, const struct fgw_kernel *kernel)
{
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    uint64_t expected_bytes =
        (uint64_t)fixed->nr_parameter_bytes + (uint64_t)fixed->nr_attributes * sizeof(CUlaunchAttribute);
    return fixed->nr_parameter_bytes <= FGW_MAX_PARAMETER_BYTES && fixed->nr_attributes <= FGV_MAX_LAUNCH_ATTRIBUTES &&
           expected_bytes == request->payload_bytes &&
           (fixed->flags & ~(uint32_t)(FGV_LAUNCH_FLAG_COOPERATIVE | FGV_LAUNCH_FLAG_KERNEL)) == 0 &&
           kernel->parameter_bytes == fixed->nr_parameter_bytes;
}

CUresult fgw_launch_read(struct fgw_worker *worker, const struct fgw_request *request, struct fgw_launch *launch)
{
    const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
    enum fgv_handle_kind kind = fixed->flags & FGV_LAUNCH_FLAG_KERNEL ? FGV_HANDLE_KERNEL : FGV_HANDLE_FUNCTION;
    void *stream;
    launch->handle = fgw_handle_find(worker, kind, fixed->function);
    launch->kernel = launch->handle.object;
    if (launch->handle.number == 0 ||
        fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = fgw_kernel_layout(worker, &launch->handle, &launch->kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_well_formed(request, launch->kernel)) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = fgw_taken_local(worker, launch->kernel->local_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    launch->parameter_bytes = fixed->nr_parameter_bytes;
    memcpy(launch->parameters, request->payload, fixed->nr_parameter_bytes);
    result = fgw_kernel_lead(worker, &launch->handle, launch->parameters, fixed->nr_parameter_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(launch->attributes, request->payload + fixed->nr_parameter_bytes,
           fixed->nr_attributes * sizeof(launch->attributes[0]));
    result = fgw_attributes_translate(worker, launch->attributes, fixed->nr_attributes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    launch->config = (CUlaunchConfig){
        .gridDimX = fixed->grid[0],
        .gridDimY = fixed->grid[1],
        .gridDimZ = fixed->grid[2],
        .blockDimX = fixed->block[0],
        .blockDimY = fixed->block[1],
        .blockDimZ = fixed->block[2],
        .sharedMemBytes = fixed->shared_bytes,
        .hStream = stream,
        .attrs = launch->attributes,
        .numAttrs = fixed->nr_attributes,
    };
    if (fixed->flags & FGV_LAUNCH_FLAG_COOPERATIVE) {
        CUlaunchAttribute *attribute = &launch->attributes[launch->config.numAttrs++];
        memset(attribute, 0, sizeof(*attribute));
        attribute->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute->value.cooperative = 1;
    }
    return CUDA_SUCCESS;
}

CUresult fgw_serve_cuLaunchKernel(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    struct fgw_launch launch;
    (void)reply;
    CUresult result = fgw_launch_read(worker, request, &launch);
    if (result == CUDA_SUCCESS) {
        result = fgw_launch_submit(worker, &launch, launch.handle.native);
        fgw_count(&worker->slot->nr_launches, 1);
    }
    return result;
}

/* What the two questions about clusters have in common. */
typedef CUresult (*fgw_cluster_fn)(int *value, CUfunction function, const CUlaunchConfig *config);

static CUresult ask_cluster(struct fgw_worker *worker, const struct fgw_request *request, fgw_cluster_fn ask,
                            int32_t *value)
{
    const struct fgv_request_cuOccupancyMaxActiveClusters *fixed = request->fixed;
    void *function;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_FUNCTION, fixed->function, &function);
    if (result != CUDA_SUCCESS || !ask) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUlaunchAttribute attributes[FGV_MAX_LAUNCH_ATTRIBUTES];
    if (fixed->nr_attributes > FGV_MAX_LAUNCH_ATTRIBUTES ||
        request->payload_bytes != fixed->nr_attributes * sizeof(*attributes)) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(attributes, request->payload, request->payload_bytes);
    result = fgw_attributes_translate(worker, attributes, fixed->nr_attributes);
    CUlaunchConfig config = {
        .gridDimX = fixed->grid[0],
        .gridDimY = fixed->grid[1],
        .gridDimZ = fixed->grid[2],
        .blockDimX = fixed->block[0],
        .blockDimY = fixed->block[1],
        .blockDimZ = fixed->block[2],
        .sharedMemBytes = fixed->shared_bytes,
        .attrs = attributes,
        .numAttrs = fixed->nr_attributes,
    };
    int answer = 0;
    if (result == CUDA_SUCCESS) {
        result = ask(&answer, function, &config);
    }
    *value = answer;
    return result;
}

_Static_assert(sizeof(struct fgv_request_cuOccupancyMaxPotentialClusterSize) ==
                   sizeof(struct fgv_request_cuOccupancyMaxActiveClusters),
               "one shape for both");

CUresult fgw_serve_cuOccupancyMaxPotentialClusterSize(struct fgw_worker *worker, const struct fgw_request *request,
                                                      void *reply)
{
    struct fgv_reply_cuOccupancyMaxPotentialClusterSize *answer = reply;
    return ask_cluster(worker, request, worker->driver.cuOccupancyMaxPotentialClusterSize, &answer->value);
}

CUresult fgw_serve_cuOccupancyMaxActiveClusters(struct fgw_worker *worker, const struct fgw_request *request,
                                                void *reply)
{
    struct fgv_reply_cuOccupancyMaxActiveClusters *answer = reply;
    return ask_cluster(worker, request, worker->driver.cuOccupancyMaxActiveClusters, &answer->value);
}
