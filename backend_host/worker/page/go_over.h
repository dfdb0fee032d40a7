/* A worker whose vGPU has changed its Gpu: from one page to another (motion.h). */
#ifndef BACKEND_HOST_GO_OVER_H
#define BACKEND_HOST_GO_OVER_H

#include "page/grantee.h"

/* Makes the worker one of the vGPU that `to` was attached to, with all that was counted for it. It has no turn and
 * waits for none. What it was in the page before is for the daemon to free. */
void fgw_grantee_go_over(struct fgw_grantee *grantee, struct fgw_grantee *to);

#endif
