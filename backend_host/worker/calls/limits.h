/* Limits of contexts under the vGPU's quota: see limits.c. */
#ifndef BACKEND_HOST_LIMITS_H
#define BACKEND_HOST_LIMITS_H

#include "cuda_api/driver.h"

/* Puts the quota in front of the driver's call. */
void fgw_limits_wrap(struct fgv_driver *driver);

#endif
