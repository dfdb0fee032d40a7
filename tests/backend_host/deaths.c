/* A worker that dies in the midst of a charge, for test_limit_deaths.py: behind any of its instructions. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "page/account.h"
#include "page/control.h"
#include "page/grant.h"
#include "page_alone.h"
#include "stepping.h"

static struct fgw_control *control;
static struct fgw_grantee grantee;

/* A page with one vGPU, which has a limit in thousandths, and a worker. */
bool begin(const int *objects, uint64_t slice_ns, uint32_t permille)
{
    control = fgw_control_format(objects, slice_ns, false);
    if (!control || fgw_control_vgpu_take(control, 0) != 0) {
        return false;
    }
    fgw_control_set_share_limit(control, 0, permille);
    fgw_control_worker_assign(control, 0, 1, 0, 0);
    return fgw_grantee_attach(&grantee, control, 0, 0);
}

void end(void)
{
    fgw_control_close(control);
}

void charge(uint64_t from_ns, uint64_t to_ns)
{
    fgw_grant_charge(&grantee, from_ns, to_ns);
}

uint64_t used_ns(void)
{
    return atomic_load(&grantee.account->used_ns);
}

uint64_t limited_until_ns(void)
{
    return atomic_load(&grantee.account->limited_until_ns);
}

struct span {
    uint64_t from_ns, to_ns;
};

static void charge_span(const void *span)
{
    const struct span *its = span;
    charge(its->from_ns, its->to_ns);
}

/* Charges in a process of its own, which is killed behind its first so many instructions. 1: it was; 0: it came to its
 * end before that; -1: it could not be watched. */
int charge_and_die(uint64_t from_ns, uint64_t to_ns, uint32_t nr_instructions)
{
    struct span span = {from_ns, to_ns};
    struct step step = {charge_span, &span};
    const pid_t child = step_begin(&step, nr_instructions);
    return child <= 0 ? child : step_die(child) ? 1 : -1;
}
