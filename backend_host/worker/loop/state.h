/* The loop's own data: the ring, requests that wait, and how the worker rests. */
#ifndef BACKEND_HOST_LOOP_STATE_H
#define BACKEND_HOST_LOOP_STATE_H

#include "client/state.h"
#include "ivshmem/habit.h"
#include "ivshmem/ring.h"

#define FGW_MAX_REQUEST_BYTES 512u /* of a fixed struct */
#define FGW_BACKLOG_BYTES     (4u << 20)

struct fgw_waiter;
struct fgw_lacking_request;

/* Of lacking.c. */
struct fgw_lacking {
    struct fgw_lacking_request *first, *last;
    uint32_t nr;
    uint64_t kept_bytes; /* of the device, which others are to leave to the first */
    uint64_t looked_ns;
    enum fgw_tries { FGW_TRIES_FIRST = 0, FGW_TRIES_AGAIN, FGW_TRIES_LAST } tries; /* that the request at hand makes */
};

struct fgw_backlog {
    uint8_t *bytes;
    uint32_t head, tail; /* a queue that is moved to the front when it is empty */
};

struct fgw_loop {
    struct fgv_consumer consumer;
    struct fgw_waiter *first_waiter, *last_waiter;
    uint32_t nr_waiters;
    struct fgw_lacking lacking;
    struct fgw_backlog backlog;

    uint64_t alerted_ns; /* when the vGPU's bell last changed */
    uint32_t bell_seen;
    uint64_t spin_ns;
    uint64_t spin_critical_ns; /* of a critical program, at most */
    uint64_t yield_after_ns;
    uint64_t watch_most_ns;     /* before and after the time when something should end */
    struct fgv_habit oversleep; /* by how much naps come out longer */
    uint64_t quiet_since_ns;
    uint64_t next_poll_ns;

    uint64_t beat, beat_changed_ns;
    uint64_t shown_ns, shown_gpu_ns; /* when the guest was last told of its use of the device, and what it was */
    uint64_t looked_ns;              /* when the client was last looked after */
};

static inline bool fgw_loop_has_backlog(const struct fgw_worker *worker)
{
    return worker->loop->backlog.head != worker->loop->backlog.tail;
}

#endif
