/*
 * A vGPU's limit: the part of the GPU that it uses at most, whether others want the rest or not. Once it has had that,
 * its workers are out of everybody's way, and ask for a turn again when they may have a whole one.
 *
 * It is the generic cell rate algorithm in one word of the vGPU's account, `limited_until_ns`: the moment up to which
 * what it was charged would last at the limit. A charge moves it on by so much over the limit, from a slice's worth
 * before now at the least, so that who sleeps saves one slice and no more. The vGPU may work while the word is not
 * ahead of now. A charge that leaves it ahead says so in its lowest bit: from then on nobody asks for a turn until
 * there is room for a whole one. What could not be stopped in time is paid back so. A death leaves nothing to repair.
 *
 * scheduler/allowance.py is the same rule for the simulator; docs/fairness.md states the bound.
 *
 * Wrong when: a worker was taken over and writes the word. It is its vGPU's own; the daemon keeps count (auditor.py).
 */
#ifndef BACKEND_HOST_ALLOWANCE_H
#define BACKEND_HOST_ALLOWANCE_H

#include "page/grantee.h"

#define FGW_ALLOWANCE_WHOLE 1000u /* limits are in thousandths of the GPU */

/* cffi: begin */
/* Of a limit in thousandths, from 1 to 999, and the slice. */
struct fgw_rate {
    uint64_t permille;
    uint64_t slice_ns;
};

/* Gives the word after a charge. */
uint64_t fgw_allowance_after(uint64_t word, struct fgw_rate rate, uint64_t used_ns, uint64_t now_ns);
/* Tells for how long the vGPU may go on with the GPU to itself; 0: what it may have is used up. */
uint64_t fgw_allowance_room_ns(uint64_t word, struct fgw_rate rate, uint64_t now_ns);
/* Tells from when on one that has used up its part may ask for a turn again; 0: it has not. */
uint64_t fgw_allowance_return_ns(uint64_t word, struct fgw_rate rate);
/* Gives the word for another limit: what is to be paid back stays. */
uint64_t fgw_allowance_changed(uint64_t word, struct fgw_rate before, struct fgw_rate after, uint64_t now_ns);
/* cffi: end */

static inline bool fgw_allowance_is_limited(const struct fgw_grantee *grantee)
{
    return atomic_load_explicit(&grantee->decided->limit_permille, memory_order_relaxed) != 0;
}

/* Charges it, now; nothing to do without a limit. */
void fgw_allowance_charge(const struct fgw_grantee *grantee, uint64_t used_ns, uint64_t now_ns);
/* Tells for how long the worker's vGPU may go on; UINT64_MAX: it has no limit. */
uint64_t fgw_allowance_left_ns(const struct fgw_grantee *grantee, uint64_t now_ns);
/* Tells when its workers may ask for a turn again; 0: now. */
uint64_t fgw_allowance_back_ns(const struct fgw_grantee *grantee, uint64_t now_ns);

#endif
