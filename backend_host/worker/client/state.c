#include "client/state.h"

#include "client/service.h"

struct fgw_worker *fgw_the_worker;

uint32_t fgw_capability_of(const struct fgw_worker *worker)
{
    int major = 0;
    int minor = 0;
    worker->driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, worker->device);
    worker->driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, worker->device);
    return (uint32_t)(major * 10 + minor);
}

const struct fgv_driver *fgw_worker_driver(struct fgw_worker *worker)
{
    return &worker->driver;
}

/* A client sees one device: the one its vGPU is on. */
CUresult fgw_worker_device(struct fgw_worker *worker, int32_t device, CUdevice *native)
{
    if (device != 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *native = worker->device;
    return CUDA_SUCCESS;
}
