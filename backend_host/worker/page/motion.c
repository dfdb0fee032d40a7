/* See motion.h. */
#include "page/motion.h"

void fgw_control_set_motion(struct fgw_control *control, uint32_t index, uint32_t motion, uint32_t device)
{
    struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    atomic_store(&vgpu->motion_device, device); /* first: who sees the motion sees where to */
    atomic_store(&vgpu->motion, motion);
}
