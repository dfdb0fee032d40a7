/*
 * vGPUs apart: each goes by a grant of its own, in its own object, and the daemon hands over among them
 * (device/apart.h).
 *
 * All workers write the grant, so a worker that its guest took over can write anything there, and nobody can tell that
 * it was that one. When the auditor finds there what no honest worker writes, the daemon begins another epoch: all go
 * by the grant of their vGPU from then on, which none of another vGPU maps. There such a worker is alone with the
 * daemon: it hurts nobody, and what it writes is evidence. Nothing else changes for a worker: it enters, waits, closes
 * and leaves by the same words. But it takes no free grant and hands nothing on, since it sees nobody else's words.
 *
 * A worker follows between two rounds of its loop, and each time before it looks whether the grant is its own. First it
 * says so: who begins an epoch waits for whoever says it and goes by another grant still, 50 ms at most.
 *
 * Wrong when: a call of the driver takes longer than that.
 */
#ifndef BACKEND_HOST_PAGE_APART_H
#define BACKEND_HOST_PAGE_APART_H

#include "page/grantee.h"

/* Tells whether this process goes by another grant than that which all share. */
static inline bool fgw_is_apart(const struct fgw_control *control)
{
    return control->grant != control->shared;
}

/* Goes over to the grant of this epoch. */
void fgw_grant_go_over(struct fgw_grantee *grantee, uint32_t epoch);
/* Goes back to the grant that all share, as in the epoch that a next daemon begins with: this one is dead, and nobody
 * else hands over. */
void fgw_grant_come_back(struct fgw_grantee *grantee);

/* cffi: begin */
/* Goes over to another grant when the daemon has begun another epoch: a load and a compare while it has not. To be
 * called between two rounds: never between a look at the grant and what follows from it. */
void fgw_grant_follow(struct fgw_grantee *grantee);
/* cffi: end */

#endif
