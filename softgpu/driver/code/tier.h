/* Code that is there already and slow, and code that does the same, faster, once the compiler has made it. */
#ifndef SOFTGPU_TIER_H
#define SOFTGPU_TIER_H

#include "base/driver.h"
#include "kernel_abi.h"

/* optimised: where the faster code will be. NULL: no memory. */
struct sgp_tier *sgp_tier_new(const char *optimised);
void sgp_tier_delete(struct sgp_tier *tier); /* NULL is fine */

/* The kernel, of the quick code's tables, in the fastest code that there is by now. tier may be NULL. Without the lock.
 */
const struct sgp_kernel *sgp_tier_kernel(struct sgp_tier *tier, const struct sgp_module *quick,
                                         const struct sgp_kernel *kernel);

#endif
