/* The host's end of the bells, eventfds that QEMU has too: see bell.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ivshmem/bell.h"
#include "wait.h"

int fgv_host_bell_listen(int eventfd)
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

void fgv_host_bell_ring(const struct fgv_host_bell *bell)
{
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
    if (ppoll(&own, 1, &limit, NULL) > 0)
        epoll_wait(bell->own, &rung, 1, 0); /* takes the edge */
}
