#include "client/state.h"

#include "client/service.h"

struct fgv_worker *fgv_the_worker;

uint32_t fgv_capability_of(const struct fgv_worker *worker)
{
    int major = 0;
    int minor = 0;
    worker->driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, worker->device);
    worker->driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, worker->device);
    return (uint32_t)(major * 10 + minor);
}

const struct fgv_driver *fgv_worker_driver(struct fgv_worker *worker)
{
    return &worker->driver;
}

/* A client sees one device: the one its vGPU is on. */
CUresult fgv_worker_device(struct fgv_worker *worker, int32_t device, CUdevice *native)
{
    if (device != 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *native = worker->device;
    return CUDA_SUCCESS;
}
