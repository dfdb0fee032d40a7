/*
 * Weighs what a device library takes of a device beside what is allocated: asked for once, by a process of its own as
 * all facts are, when the daemon starts and nobody computes yet.
 *
 * Wrong when: another program allocates or frees on the same device meanwhile. Daemons start before their guests.
 */
#include <stdio.h>
#include <stdlib.h>

#include "loop/face.h"

/* So many streams are weighed together: a driver takes memory for several at once, 2 MiB at least. */
#define NR_STREAMS 64u

struct fgw_scale {
    struct fgv_driver driver;
    CUdevice device;
    CUcontext context;
};

struct fgw_scale *fgw_scale_open(const char *library, int ordinal, char *error, uint32_t error_bytes)
{
    struct fgw_scale *scale = calloc(1, sizeof(*scale));
    CUresult result =
        scale ? (CUresult)fgw_worker_load(library, &scale->driver, error, error_bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = scale->driver.cuDeviceGet(&scale->device, ordinal);
    }
    if (result == CUDA_SUCCESS) {
        result = scale->driver.cuDevicePrimaryCtxRetain(&scale->context, scale->device);
    }
    if (result == CUDA_SUCCESS) {
        result = scale->driver.cuCtxSetCurrent(scale->context);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "%s: CUDA error %d while weighing device %d", library, (int)result, ordinal);
        free(scale);
        return NULL;
    }
    return scale;
}

uint64_t fgw_scale_free_bytes(struct fgw_scale *scale)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (!scale->driver.cuMemGetInfo_v2 || scale->driver.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        return 0;
    }
    return free_bytes;
}

uint64_t fgw_scale_stream_bytes(struct fgw_scale *scale)
{
    CUstream streams[NR_STREAMS];
    uint32_t nr = 0;
    const uint64_t before_bytes = fgw_scale_free_bytes(scale);
    while (nr < NR_STREAMS && scale->driver.cuStreamCreate && scale->driver.cuStreamDestroy_v2 &&
           scale->driver.cuStreamCreate(&streams[nr], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        nr++;
    }
    const uint64_t after_bytes = fgw_scale_free_bytes(scale);
    for (uint32_t i = 0; i < nr; i++) {
        scale->driver.cuStreamDestroy_v2(streams[i]);
    }
    return nr != 0 && after_bytes < before_bytes ? (before_bytes - after_bytes) / nr : 0;
}

void fgw_scale_close(struct fgw_scale *scale)
{
    scale->driver.cuCtxSetCurrent(NULL);
    scale->driver.cuDevicePrimaryCtxRelease_v2(scale->device);
    free(scale);
}
