/* A worker asks here when it may submit GPU work, and its vGPU is charged for it: see turn.c. */
#ifndef BACKEND_HOST_TURN_H
#define BACKEND_HOST_TURN_H

#include "turn/state.h"

/* What is left when the grant goes on may be done late by that: the device gives the next one time slices of its own
 * first, of 2 ms each. */
#define FGW_TAIL_NS UINT64_C(5000000)
/* Work that goes on for more than half a slice is not waited for at the end of one, and not left beside a vGPU that
 * will use all of its own: to withdraw it takes some 1 ms, to wait for it keeps that one off for half a turn. */
#define FGW_LONG_DIVISOR 2u

/* Tells whether one more submission may be made now. */
bool fgw_turn_begin(struct fgw_worker *worker);
/* The loop calls it after each round: it charges, and leaves the grant when there is nothing to do or the slice is
 * over. */
void fgw_turn_poll(struct fgw_worker *worker, uint64_t now_ns);
/* The loop is about to stand still for long: gives the grant back if nothing is in flight, and waits for none, whatever
 * stands in the backlog. It asks for a turn again when it has the time for one. */
void fgw_turn_give_back(struct fgw_worker *worker);
/* The client has ended, maybe with work in flight whose end nobody will see: from here to `fgw_turn_end`, when the
 * device has let go of it, is charged. */
void fgw_turn_end_begin(struct fgw_worker *worker);
void fgw_turn_end(struct fgw_worker *worker);
/* As struct fgw_track_listener has them. */
void fgw_turn_started(struct fgw_worker *worker, bool was_empty, uint64_t begun_ns);
void fgw_turn_finished(struct fgw_worker *worker, uint32_t nr, uint64_t now_ns);
/* Charges what is on the device, up to now. */
void fgw_turn_charge(struct fgw_worker *worker, uint64_t now_ns);
bool fgw_turn_may_change(const struct fgw_worker *worker);
/* Tells when the grant of a slice that is over is to go on, by what is known of the work on the device; 0: not by that.
 */
uint64_t fgw_turn_way_ns(const struct fgw_worker *worker);
/* Gives the grant back. `wants_more` as in fgw_grant_leave. */
void fgw_turn_leave(struct fgw_worker *worker, bool wants_more, uint64_t now_ns);

/* Its work is off the device: until its turn comes no call is made that might wait for that work. */
static inline bool fgw_turn_is_off(const struct fgw_worker *worker)
{
    return worker->turn->withdrawal.since_ns != 0;
}

/* Tells whether turns are wanted for a backlog. */
static inline void fgw_turn_set_backlog(struct fgw_worker *worker, bool has_backlog)
{
    worker->turn->has_backlog = has_backlog;
}

static inline void fgw_turn_set_gated(struct fgw_worker *worker, bool is_gated)
{
    worker->turn->is_gated = is_gated;
}

static inline void fgw_turn_set_wanted_behind(struct fgw_worker *worker, bool is_wanted)
{
    worker->turn->is_wanted_behind = is_wanted;
}

#endif
