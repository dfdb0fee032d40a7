/*
 * How processes that share the control page wake each other: the daemon's bell, and one for each vGPU's workers.
 */
#define _GNU_SOURCE
#include "page/bell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

#define FGW_UNKICKED_NS                                                                                                \
    UINT64_C(500000) /* a kernel that cannot wait for two words (before 5.16): the second is looked at this often */

uint64_t fgw_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void fgw_bell_ring(_Atomic uint32_t *bell)
{
    atomic_fetch_add(bell, 1);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t fgw_control_bell(struct fgw_control *control)
{
    return atomic_load(&control->grant->daemon_bell);
}

void fgw_control_ring_bell(struct fgw_control *control)
{
    fgw_bell_ring(&control->grant->daemon_bell);
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

uint32_t fgw_control_wait_bell(struct fgw_control *control, uint32_t seen, uint64_t timeout_ns)
{
    const uint64_t end_ns = fgw_clock_ns() + timeout_ns;
    for (;;) {
        uint32_t bell = atomic_load(&control->grant->daemon_bell);
        uint64_t now_ns = fgw_clock_ns();
        if (bell != seen || now_ns >= end_ns) {
            return bell;
        }
        const struct timespec left = timespec_of(end_ns - now_ns);
        if (syscall(SYS_futex, &control->grant->daemon_bell, FUTEX_WAIT, seen, &left, NULL, 0) < 0 && errno == EINTR) {
            return atomic_load(&control->grant->daemon_bell); /* the caller's signal handlers want to run */
        }
    }
}

uint32_t fgw_grant_bell(const struct fgw_grantee *grantee)
{
    return atomic_load(&grantee->seat->bell);
}

/* As linux/futex.h has it, in its newer versions. */
struct fgw_two_futexes {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};

#define FGW_FUTEX_32 2u

void fgw_grant_sleep(struct fgw_grantee *grantee, uint32_t bell, void *kick, uint64_t timeout_ns)
{
    struct fgw_two_futexes words[2] = {
        {.value = bell, .address = (uint64_t)(uintptr_t)&grantee->seat->bell, .flags = FGW_FUTEX_32},
        {.value = 1, .address = (uint64_t)(uintptr_t)kick, .flags = FGW_FUTEX_32},
    };
    uint64_t end_ns = fgw_clock_ns() + timeout_ns;
    struct timespec end = timespec_of(end_ns);
    if (syscall(SYS_futex_waitv, words, kick ? 2 : 1, 0, &end, CLOCK_MONOTONIC) < 0 &&
        (errno == ENOSYS || errno == EPERM)) {
        uint64_t nap_ns = kick && timeout_ns > FGW_UNKICKED_NS ? FGW_UNKICKED_NS : timeout_ns;
        struct timespec nap = timespec_of(nap_ns);
        syscall(SYS_futex, &grantee->seat->bell, FUTEX_WAIT, bell, &nap, NULL, 0);
    }
}
