/*
 * A vGPU that moves to another Gpu with all of its programs. The daemon says how far its workers are to go: to make
 * memory of the host ready for what is on the device, ahead, while their programs run on; then to stand, with their
 * memory off the device and nothing on it. A worker says how far it is. One that stands calls nothing of the device
 * library and answers nobody until the daemon says more: that it goes on where it is, by this word, or that it goes by
 * another page from now on, on its socket (client/daemon.h).
 */
#ifndef BACKEND_HOST_MOTION_H
#define BACKEND_HOST_MOTION_H

#include "page/grantee.h"

static inline enum fgw_motion fgw_motion(const struct fgw_grantee *grantee)
{
    return (enum fgw_motion)atomic_load_explicit(&grantee->decided->motion, memory_order_relaxed);
}

static inline void fgw_motion_tell(const struct fgw_grantee *grantee, enum fgw_stage stage)
{
    atomic_store_explicit(&grantee->slot->stage, stage, memory_order_release);
}

/* cffi: begin */
/* Of the daemon: */
void fgw_control_set_motion(struct fgw_control *control, uint32_t index, uint32_t motion);
/* cffi: end */

#endif
