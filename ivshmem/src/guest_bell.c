/* The guest's end of the bells, through its kernel module: see bell.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/ioctl.h>

#include "ivshmem/bell.h"
#include "ivshmem/device.h"
#include "wait.h"

static void give_up(const struct fgv_guest_bell *bell)
{
    /* Relaxed: the worker looks at it before it sleeps, and a sleep that has begun ends by its time limit. */
    atomic_store_explicit(bell->is_in_use, 0, memory_order_relaxed);
}

void fgv_guest_bell_ring(const struct fgv_guest_bell *bell, uint32_t peer)
{
    if (ioctl(bell->device, FGV_DEVICE_RING, (unsigned long)peer) != 0) {
        give_up(bell);
    }
}

void fgv_guest_bell_wait(const struct fgv_guest_bell *bell, uint32_t nr_rung, uint64_t timeout_ns)
{
    struct fgv_device_wait wait = {.vector = bell->vector, .seen = nr_rung, .timeout_ns = timeout_ns};
    if (ioctl(bell->device, FGV_DEVICE_WAIT, &wait) == 0 || errno == ETIME || errno == EINTR) {
        return;
    }
    give_up(bell);
    fgv_nap(FGV_NAP_MIN_NS);
}
