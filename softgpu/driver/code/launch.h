/* A kernel launch as it is kept: by a command in a queue, by a node of a graph. All with the driver's lock held. */
#ifndef SOFTGPU_LAUNCH_H
#define SOFTGPU_LAUNCH_H

#include "device/device.h"
#include "kernel_abi.h"

struct sgp_orders;

struct sgp_launch {
    CUfunction handle; /* as the program named it: a function or a kernel */
    struct CUmod_st *module;
    const struct sgp_kernel *kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t dynamic_shared_bytes;
    bool is_cooperative;
    struct sgp_orders *orders; /* of the graph that runs it, or NULL */
};

/* Finds the kernel behind `handle` and looks whether the launch can be made; fills module and kernel. */
CUresult sgp_launch_resolve(struct CUctx_st *context, struct sgp_launch *launch);
/* Copies what the program passed as `kernelParams` or `extra` to where the kernel expects it. */
CUresult sgp_launch_pack(const struct sgp_kernel *kernel, void **parameters, void **extra, uint8_t *to);
/* Queues it, with packed parameters. */
CUresult sgp_launch_submit(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_launch *launch,
                           uint8_t *parameters);

#endif
