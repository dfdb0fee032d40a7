/*
 * Bells: how a peer that sleeps is woken across the VM's border, by the doorbell of QEMU's ivshmem-doorbell device.
 *
 * A server of our own (server.py) gives QEMU an eventfd for each bell. The guest rings one by writing to a register of
 * the device, which its kernel module does for it; KVM turns the write into the eventfd without leaving the kernel. The
 * host rings by writing to an eventfd, and the guest gets an interrupt. When to ring, and why no wake-up is lost, is
 * told in docs/region.md.
 *
 * Who is who among the peers of the server is fixed: bells outlive workers and daemon, so nobody has to be told of new
 * ones, and none is rung before QEMU knows it.
 *
 * Wrong when: the guest's program closes descriptors that are not its own. Its bell is then given up: `has_bell`
 * becomes 0, and both sides nap as under FGV_WAKE_POLL.
 */
#ifndef IVSHMEM_BELL_H
#define IVSHMEM_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ivshmem/region.h"

#define FGV_PEER_GUEST       0u
#define FGV_PEER_DAEMON      1u /* rung when a client changed state */
#define FGV_PEER_WORKERS     2u /* + index of the client: rung when its worker is parked */
#define FGV_NR_PEERS         (FGV_PEER_WORKERS + FGV_NR_CLIENTS)
#define FGV_NR_GUEST_VECTORS 16u /* that the device has; clients share them */

/* The guest's end: a device of the kernel module, opened. */
struct fgv_guest_bell {
    int device;
    uint32_t vector;
    uint32_t worker_peer;
    const _Atomic uint32_t *rung; /* how often the vector was rung, mapped from the module */
    _Atomic uint32_t *is_in_use;  /* the client's has_bell */
};

static inline bool fgv_guest_bell_works(const struct fgv_guest_bell *bell)
{
    return atomic_load_explicit(bell->is_in_use, memory_order_relaxed) == 1;
}

/* What was rung before is seen with it: acquire. */
static inline uint32_t fgv_guest_bell_rung(const struct fgv_guest_bell *bell)
{
    return atomic_load_explicit(bell->rung, memory_order_acquire);
}

void fgv_guest_bell_ring(const struct fgv_guest_bell *bell, uint32_t peer);
/* Sleeps until the vector was rung once more than `nr_rung` times, for `timeout_ns`, or until a signal. */
void fgv_guest_bell_wait(const struct fgv_guest_bell *bell, uint32_t nr_rung, uint64_t timeout_ns);

/* The host's end, of one client. */
struct fgv_host_bell {
    int guest;         /* eventfd: an interrupt of the guest; the owner's */
    int own;           /* epoll descriptor: each ring is an edge */
    int ready;         /* what is asked for to make the kernel ring, and with what: host_bell.c */
    uint64_t requests; /* aio_context_t, 0: none */
};

/* Takes what the kernel has to give of asynchronous requests, which is little, for all processes: so a worker does this
 * before its guest could make it take everything. */
void fgv_host_bell_prepare(struct fgv_host_bell *bell);
/* Of one that was prepared. `guest` and `own`: eventfds, the caller's. False, with errno. Nobody reads `own`: QEMU has
 * it too, and could empty it between a look and a read, which would then block. */
bool fgv_host_bell_open(struct fgv_host_bell *bell, int guest, int own);
/* From any thread. Never blocks, whatever QEMU did to the eventfd. */
void fgv_host_bell_ring(const struct fgv_host_bell *bell);
/* Sleeps until rung, for `timeout_ns`, or until a signal. A ring since the last wait counts. */
void fgv_host_bell_wait(const struct fgv_host_bell *bell, uint64_t timeout_ns);

#endif
