/* See motion.h. */
#include "page/motion.h"

void fgw_control_set_motion(struct fgw_control *control, uint32_t index, uint32_t motion)
{
    atomic_store(&control->decided->vgpus[index].motion, motion);
}

void fgw_control_set_motion_device(struct fgw_control *control, uint32_t slot, uint32_t device)
{
    atomic_store(&control->decided->workers[slot].motion_device, device);
}
