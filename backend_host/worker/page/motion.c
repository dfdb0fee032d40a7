/* See motion.h. */
#include "page/motion.h"

void fgw_control_set_motion(struct fgw_control *control, uint32_t index, uint32_t motion)
{
    atomic_store(&control->decided->vgpus[index].motion, motion);
}
