/* Processes that share the control page wake each other by bells: the daemon's bell, and one for each vGPU's workers.
 */
#ifndef BACKEND_HOST_BELL_H
#define BACKEND_HOST_BELL_H

#include "page/grantee.h"

/* cffi: begin */
uint64_t fgw_clock_ns(void);
/* Sleeping without losing the wake-up: take the bell, try to enter, and sleep only if that failed. `kick` is NULL or a
 * second futex, slept on while it is 1. */
uint32_t fgw_grant_bell(const struct fgw_grantee *grantee);
void fgw_grant_sleep(struct fgw_grantee *grantee, uint32_t bell, void *kick, uint64_t timeout_ns);
uint32_t fgw_control_wait_bell(struct fgw_control *control, uint32_t seen, uint64_t timeout_ns);
uint32_t fgw_control_bell(struct fgw_control *control);
void fgw_control_ring_bell(struct fgw_control *control);
/* cffi: end */

/* Changes the futex, and wakes all that sleep on it. */
void fgw_bell_ring(_Atomic uint32_t *bell);

#endif
