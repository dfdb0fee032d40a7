/*
 * The host's end of the bells, eventfds that QEMU has too: see bell.h.
 *
 * Whoever has an eventfd can fill it and take its O_NONBLOCK away, and a write of ours would then never return. So the
 * kernel rings: an asynchronous request that is done at once, a poll of an eventfd that is always ready, tells of its
 * end by the guest's eventfd, and what the kernel signals never blocks. Where the kernel has no asynchronous requests
 * to give, the bell is written.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ivshmem/bell.h"
#include "wait.h"

#define NR_REQUESTS 16

static int epoll_of(int eventfd)
{
    int own = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET};
    if (own >= 0 && epoll_ctl(own, EPOLL_CTL_ADD, eventfd, &edge) != 0) {
        int failed = errno;
        close(own);
        errno = failed;
        return -1;
    }
    return own;
}

void fgv_host_bell_prepare(struct fgv_host_bell *bell)
{
    aio_context_t requests = 0;
    *bell = (struct fgv_host_bell){.guest = -1, .own = -1, .ready = eventfd(1, EFD_CLOEXEC)};
    if (bell->ready >= 0 && syscall(SYS_io_setup, NR_REQUESTS, &requests) == 0) {
        bell->requests = requests;
    }
}

bool fgv_host_bell_open(struct fgv_host_bell *bell, int guest, int own)
{
    bell->guest = guest;
    bell->own = epoll_of(own);
    return bell->own >= 0;
}

static bool request(const struct fgv_host_bell *bell)
{
    struct iocb poll_ready = {
        .aio_lio_opcode = IOCB_CMD_POLL,
        .aio_fildes = (uint32_t)bell->ready,
        .aio_buf = POLLIN,
        .aio_flags = IOCB_FLAG_RESFD,
        .aio_resfd = (uint32_t)bell->guest,
    };
    struct iocb *requests[1] = {&poll_ready};
    return syscall(SYS_io_submit, bell->requests, 1, requests) == 1;
}

/* Takes away what is done, which would fill the queue. */
static void reap(const struct fgv_host_bell *bell)
{
    struct io_event done[NR_REQUESTS];
    struct timespec at_once = {0};
    syscall(SYS_io_getevents, bell->requests, 0, NR_REQUESTS, done, &at_once);
}

void fgv_host_bell_ring(const struct fgv_host_bell *bell)
{
    if (bell->requests != 0) {
        bool is_rung = request(bell);
        reap(bell);
        if (is_rung || request(bell)) {
            return;
        }
    }
    const uint64_t one = 1;
    /* One that is full is rung already. */
    ssize_t written = write(bell->guest, &one, sizeof(one));
    (void)written;
}

void fgv_host_bell_wait(const struct fgv_host_bell *bell, uint64_t timeout_ns)
{
    struct pollfd own = {.fd = bell->own, .events = POLLIN};
    struct timespec limit = fgv_timespec(timeout_ns);
    struct epoll_event rung;
    if (ppoll(&own, 1, &limit, NULL) > 0) {
        epoll_wait(bell->own, &rung, 1, 0); /* takes the edge */
    }
}
