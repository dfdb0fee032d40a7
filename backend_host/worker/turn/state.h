/* This floor says when GPU work may be submitted: here are its data, and what it asks of floors above. */
#ifndef BACKEND_HOST_TURN_STATE_H
#define BACKEND_HOST_TURN_STATE_H

#include "channels/channels.h"
#include "client/state.h"
#include "ivshmem/habit.h"
#include "track/burst.h"
#include "turn/phase.h"

/* Short pauses are waited out, and a newcomer has to wait, until an eighth of the slice is over: of 30 ms that is 25
 * times what a hand-over costs. */
#define FGW_MIN_SLICE_DIVISOR 8

struct fgw_way;

/* A turn asks this of the floors above it. */
struct fgw_turn_above {
    /* A launch goes in parts, and can stop at any of them. */
    bool (*is_in_parts)(const struct fgw_worker *worker);
    /* Tells a kernel that can stop to do so, if it was not told. Since when it was; 0: there is none. */
    uint64_t (*stop)(struct fgw_worker *worker);
    /* Wakes whoever of the guest sleeps and waits for what has been submitted, copies included. */
    void (*rouse)(struct fgw_worker *worker);
};

struct fgw_charging {
    uint64_t until_ns; /* what is on the device is charged up to here */
    uint64_t ended_ns; /* the client has ended with work in flight: not charged from here on; 0: there was none */
};

struct fgw_patience {
    uint64_t idle_since_ns;  /* of an idle holder */
    uint64_t pause_since_ns; /* nothing to do, with the grant or without; 0: that has been measured */
    uint64_t burst_since_ns; /* work in flight without a pause since then */
    uint64_t burst_ns;       /* mean length of that */
    struct fgv_habit pause;  /* length of its pauses */
};

struct fgw_newcomers {
    uint64_t looked_ns, urgent_looked_ns;
    uint32_t hurried_sequence; /* of the grant that is given back before the slice is over */
};

/* Its work is off the device, or was. */
struct fgw_away {
    const struct fgw_way *by; /* the way it went */
    uint64_t since_ns;
    uint64_t back_ns; /* on it again; 0: it never was off */
};

struct fgw_withdrawal {
    fgv_channels_set_off_fn set_off; /* NULL: there is no way */
    uint64_t asked_ns;               /* to take it off, last time */
    uint64_t took_ns;                /* that; 0: it never was */
};

struct fgw_yields {
    uint64_t asked_ns;      /* kernels were asked to give way, and have not ended; 0: they were not */
    uint64_t taken_back_ns; /* all words were last made zero */
    bool is_dirty;          /* a word may not be zero */
    bool is_written;        /* the device may not have come to one that was written */
};

struct fgw_rounds {
    uint64_t word;           /* the address of the split word; 0: there is none */
    uint64_t began_ns;       /* a round goes on since then; 0: none does */
    uint64_t ended_ns;       /* the last one; 0: there was none */
    struct fgv_habit pauses; /* between two */
    CUstream side;           /* the worker's own, which may not have come to the word yet; NULL: it is not there */
    bool had_waited;         /* the work with which the round that goes on began: since when is not known */
    uint32_t signature;      /* of what it does */
    uint32_t nr;
    uint32_t asked;      /* by the round that goes on */
    uint32_t split;      /* that this worker has asked for, and has to take back; 0: nothing */
    bool was_given_back; /* in the midst of the round */
};

struct fgw_space_gate {
    uint64_t since_ns; /* a launch waits, or its turn is asked for; 0: none does */
    uint64_t shut_ns;  /* it was last seen shut */
};

struct fgw_copy_credit {
    uint64_t bytes;
    uint64_t filled_ns; /* when that was so; says nothing of a full one */
};

struct fgw_beside {
    bool is_possible;               /* the device has engines for it */
    bool was_copying;               /* when credit was last seen to, or since */
    uint64_t bytes;                 /* of the copy at hand, or the newest */
    struct fgw_copy_credit *credit; /* for it */
    struct fgw_copy_credit pinned, staged;
};

struct fgw_turn {
    const struct fgw_turn_above *above;
    enum fgw_phase phase;
    bool has_backlog;            /* requests wait for a turn, or for what keeps them from asking for one */
    bool is_gated;               /* the backlog waits for a gate, a host function or a place, not for the grant */
    bool is_awaited;             /* what lacked room on the device waits for the rest of its memory, too */
    bool is_displaced;           /* its memory is not on the device, or has to go: nothing more is submitted */
    bool is_wanted_behind;       /* a host function has returned, and there is work behind it */
    uint32_t alerted_sequence;   /* of the grant for which the next one was woken in time */
    uint64_t held_back_since_ns; /* its limit keeps it from a turn; 0: it does not */
    uint64_t shared_ns;          /* another vGPU was last seen to want the device, or to have it; 0: not lately */
    struct fgw_charging charging;
    struct fgw_patience patience;
    struct fgw_bursts bursts;
    struct fgw_newcomers newcomers;
    struct fgw_away away;
    struct fgw_withdrawal withdrawal;
    struct fgw_yields yields;
    struct fgw_beside beside;
    struct fgw_rounds rounds;
    struct fgw_space_gate space_gate;
};

/* It may submit, or its work has to end before others may: its bit is in `users`. */
static inline bool fgw_turn_is_user(const struct fgw_worker *worker)
{
    return fgw_phase_stand(worker->turn->phase) == FGW_USES;
}

static inline bool fgw_turn_is_waiting(const struct fgw_worker *worker)
{
    return fgw_phase_stand(worker->turn->phase) == FGW_WAITS;
}

/* Its work is off the device: until its turn comes no call is made that might wait for that work. */
static inline bool fgw_turn_is_off(const struct fgw_worker *worker)
{
    return fgw_phase_work(worker->turn->phase) == FGW_WORK_OFF;
}

#endif
