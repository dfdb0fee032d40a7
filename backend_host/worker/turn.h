/*
 * When GPU work may be submitted, and what it is charged: the data of this floor, what it asks of floors above, and
 * turn.c.
 */
#ifndef BACKEND_HOST_TURN_H
#define BACKEND_HOST_TURN_H

#include "account.h"
#include "beside.h"
#include "grant.h"
#include "ivshmem/habit.h"
#include "state.h"
#include "withdraw.h"

/* What is left when the grant goes on may be done late: the device gives the next one a time slice of its own first. */
#define FGV_TAIL_NS UINT64_C(5000000)

/* What a turn asks of the floors above it. */
struct fgv_turn_above {
    /* A launch goes in parts, and can stop at any of them. */
    bool (*is_in_parts)(const struct fgv_worker *worker);
    /* Tells a kernel that can stop to do so, if it was not told. Since when it was; 0: there is none. */
    uint64_t (*stop)(struct fgv_worker *worker);
    /* Wakes whoever of the guest sleeps and waits for what has been submitted, copies included. */
    void (*rouse)(struct fgv_worker *worker);
};

struct fgv_turn {
    const struct fgv_turn_above *above;
    bool has_backlog;          /* requests wait for a turn, or for what keeps them from asking for one */
    bool is_gated;             /* the backlog waits for a gate or a host function, not for the grant */
    bool is_wanted_behind;     /* a host function has returned, and there is work behind it */
    uint64_t busy_since_ns;    /* charged up to here; 0: nothing runs */
    uint64_t tail_until_ns;    /* work was left to end beside another vGPU's, paid for in advance; 0: none */
    uint64_t idle_since_ns;    /* holding the grant with nothing to do */
    uint32_t alerted_sequence; /* of the grant for which the next one was woken in time */
    uint32_t hurried_sequence; /* of the grant that is given back before the slice is over, for a newcomer */
    uint64_t newcomer_looked_ns;
    uint64_t shared_ns;      /* another vGPU was last seen to want the device, or to have it; 0: not lately */
    uint64_t ended_busy_ns;  /* the client has ended with work in flight: not charged from here on */
    uint64_t pause_since_ns; /* nothing to do, with the grant or without */
    uint64_t burst_since_ns; /* work in flight without a pause since then */
    uint64_t burst_ns;       /* mean length of that */
    struct fgv_habit gap;    /* length of its pauses */
    struct fgv_withdrawal withdrawal;
    struct fgv_beside beside;
};

/* Whether one more submission may be made now. */
bool fgv_turn_begin(struct fgv_worker *worker);
/* After each round of the loop: charges, leaves the grant when there is nothing to do or the slice is over. */
void fgv_turn_poll(struct fgv_worker *worker, uint64_t now_ns);
/* Before the loop stands still for long: gives the grant back if nothing is in flight, and waits for none, whatever
 * stands in the backlog. It asks for a turn again when it has the time for one. */
void fgv_turn_pause(struct fgv_worker *worker);
/* The client has ended, maybe with work in flight whose end nobody will see: from here to `fgv_turn_end`, when the
 * device has let go of it, is charged. */
void fgv_turn_end_begin(struct fgv_worker *worker);
void fgv_turn_end(struct fgv_worker *worker);
/* As struct fgv_track_listener has them. */
void fgv_turn_started(struct fgv_worker *worker, bool was_empty, uint64_t begun_ns);
void fgv_turn_finished(struct fgv_worker *worker, uint32_t nr, uint64_t now_ns);
/* What is on the device, up to now. */
void fgv_turn_charge(struct fgv_worker *worker, uint64_t now_ns);
bool fgv_turn_may_change(const struct fgv_worker *worker);
/* When the grant of a slice that is over is to go on, by what is known of the work on the device; 0: not by that. */
uint64_t fgv_turn_way_ns(const struct fgv_worker *worker);
/* Gives the grant back. `wants_more` as in fgv_grant_leave. */
void fgv_turn_leave(struct fgv_worker *worker, bool wants_more, uint64_t now_ns);

/* Its work is off the device: until its turn comes no call is made that might wait for that work. */
static inline bool fgv_turn_is_off(const struct fgv_worker *worker)
{
    return worker->turn->withdrawal.since_ns != 0;
}

/* What turns are wanted for. */
static inline void fgv_turn_set_backlog(struct fgv_worker *worker, bool has_backlog)
{
    worker->turn->has_backlog = has_backlog;
}

static inline void fgv_turn_set_gated(struct fgv_worker *worker, bool is_gated)
{
    worker->turn->is_gated = is_gated;
}

static inline void fgv_turn_set_wanted_behind(struct fgv_worker *worker, bool is_wanted)
{
    worker->turn->is_wanted_behind = is_wanted;
}

#endif
