/* When GPU work may be submitted, and what it is charged: see turn.c. */
#ifndef BACKEND_HOST_TURN_H
#define BACKEND_HOST_TURN_H

#include "turn/state.h"

/* What is left when the grant goes on may be done late: the device gives the next one a time slice of its own first. */
#define FGV_TAIL_NS UINT64_C(5000000)

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
