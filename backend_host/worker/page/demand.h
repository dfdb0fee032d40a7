/*
 * What is known of how much of the device each worker's program would use if it were alone: for the daemon, which looks
 * at it every 100 ms (device/demand.py).
 *
 * Wrong when: a worker that was taken over says what is not so. The daemon bounds what it makes of that.
 */
#ifndef BACKEND_HOST_DEMAND_H
#define BACKEND_HOST_DEMAND_H

#include "page/layout.h"

/* cffi: begin */
struct fgw_demand_reading {
    uint32_t slot;
    uint32_t vgpu;
    uint32_t pid;
    uint32_t waits;      /* for a turn, or for its memory, now */
    uint64_t last_error; /* a CUresult */
    uint64_t gpu_ns;
    uint64_t busy_ns;
    uint64_t waited_ns;        /* for a turn, for its limit, and for its memory, waits that have ended */
    uint64_t stalled_since_ns; /* it has work on the device, and none has ended since; 0: it has none */
};

/* Reads those that serve a program, and tells how many there are; there is room for FGW_MAX_WORKERS. */
uint32_t fgw_control_demands(struct fgw_control *control, struct fgw_demand_reading *readings);
/* cffi: end */

#endif
