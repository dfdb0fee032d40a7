/* A worker that dies in the midst of a charge, for test_limit_deaths.py: behind any of its instructions. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page/account.h"
#include "page/bell.h"
#include "page/control.h"
#include "page/grant.h"

static struct fgw_control *control;
static struct fgw_grantee grantee;

uint64_t fgw_clock_ns(void)
{
    return 0;
}

void fgw_bell_ring(_Atomic uint32_t *bell)
{
    (void)bell;
}

void fgw_control_ring_bell(struct fgw_control *at)
{
    (void)at;
}

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

static int watched(void *span)
{
    const struct span *its = span;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(1);
    }
    kill((pid_t)syscall(SYS_getpid), SIGSTOP);
    charge(its->from_ns, its->to_ns);
    _exit(0);
}

/* Charges in a process of its own, which is killed behind its first so many instructions. 1: it was; 0: it came to its
 * end before that; -1: it could not be watched. It has this one's memory, as to copy that would take most of the time.
 */
int charge_and_die(uint64_t from_ns, uint64_t to_ns, uint32_t nr_instructions)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    struct span span = {from_ns, to_ns};
    int status = 0;
    const pid_t child = clone(watched, stack + sizeof(stack), CLONE_VM | SIGCHLD, &span);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
        return -1;
    }
    for (uint32_t i = 0; i < nr_instructions; i++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child) {
            return -1;
        }
        if (!WIFSTOPPED(status)) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
        }
    }
    kill(child, SIGKILL);
    return waitpid(child, &status, 0) == child ? 1 : -1;
}
