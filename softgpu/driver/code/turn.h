/* When a kernel has the device. */
#ifndef SOFTGPU_TURN_H
#define SOFTGPU_TURN_H

#include "device/device.h"
#include "runtime/runtime.h"

struct sgp_turn {
    struct sgp_device *device;
    struct sgp_run run; /* in a space */
};

/* Blocks until the launch may run; says so in `grid`. Without the lock. */
void sgp_turn_take(struct sgp_turn *turn, struct sgp_device *device, struct sgp_grid *grid);
CUresult sgp_turn_leave(struct sgp_turn *turn, const struct sgp_grid *grid,
                        uint64_t busy_ns); /* the device's failure */

#endif
