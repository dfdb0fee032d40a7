/* See sleep.h. */
#include "page/sleep.h"

void fgw_control_set_sleep(struct fgw_control *control, uint32_t slot, uint32_t sleep)
{
    atomic_store(&control->decided->workers[slot].sleep, sleep);
}

void fgw_control_set_laid_bytes(struct fgw_control *control, uint32_t slot, uint64_t bytes)
{
    atomic_store(&control->decided->workers[slot].laid_bytes, bytes);
}
