/*
 * A vGPU that moves to another Gpu with all of its programs. The daemon says how far its workers are to go, and a
 * worker says how far it is (its stage).
 *
 * By a checkpoint: to make memory of the host ready for what is on the device, ahead, while its program runs on
 * (PREPARED); then to stand, with its memory off the device and nothing on it (STANDS).
 *
 * By replay: to make all that its program has a second time on the other device, ahead, while that runs on (PREPARED);
 * then to be on that device (STANDS), with what was before kept. One that cannot says why not (bound) and stays at
 * RUNS.
 *
 * One that stands answers nobody until the daemon says more: that it goes on where it was, by this word, or that it
 * goes by another page from now on, on its socket (client/daemon.h). It is back at RUNS once nothing is left of what it
 * had ahead.
 */
#ifndef BACKEND_HOST_MOTION_H
#define BACKEND_HOST_MOTION_H

#include "page/grantee.h"

static inline enum fgw_motion fgw_motion(const struct fgw_grantee *grantee)
{
    return (enum fgw_motion)atomic_load_explicit(&grantee->decided->motion, memory_order_acquire);
}

/* Tells to which device it goes: an ordinal, as this worker counts devices. After a checkpoint that put it on another
 * one it counts them otherwise. */
static inline uint32_t fgw_motion_device(const struct fgw_grantee *grantee)
{
    const struct fgw_decided_worker *worker = &grantee->control->decided->workers[grantee->slot_index];
    return atomic_load_explicit(&worker->motion_device, memory_order_relaxed);
}

static inline void fgw_motion_tell(const struct fgw_grantee *grantee, enum fgw_stage stage)
{
    atomic_store_explicit(&grantee->slot->stage, stage, memory_order_release);
}

/* cffi: begin */
/* Of the daemon: */
void fgw_control_set_motion(struct fgw_control *control, uint32_t index, uint32_t motion);
/* Before a motion that leads to another device. */
void fgw_control_set_motion_device(struct fgw_control *control, uint32_t slot, uint32_t device);
/* cffi: end */

#endif
