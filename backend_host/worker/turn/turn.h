/* A worker asks here when it may submit GPU work, and its vGPU is charged for it: see turn.c. */
#ifndef BACKEND_HOST_TURN_H
#define BACKEND_HOST_TURN_H

#include "turn/state.h"

/* A device that preempts has ways off it, and engines for copies beside turns: finds out which. */
void fgw_turn_know_device(struct fgw_worker *worker);
/* Tells whether one more submission may be made now, or whether what stands behind a host function may begin. A
 * displaced worker may begin that, and submits nothing: its memory does not leave before that has ended. */
bool fgw_turn_begin(struct fgw_worker *worker);
/* The loop calls it after each round: it charges, and leaves the grant when there is nothing to do or the slice is
 * over. */
void fgw_turn_poll(struct fgw_worker *worker, uint64_t now_ns);
/* The loop is about to stand still for long: gives the grant back if nothing is in flight, and waits for none, whatever
 * stands in the backlog. It asks for a turn again when it has the time for one. */
void fgw_turn_give_back(struct fgw_worker *worker);
/* The client has ended: no driver lets go of what stands still, so that is brought back. What may be in flight is
 * charged when the device has let go of it (charge.h). */
void fgw_turn_end(struct fgw_worker *worker);
/* Tells whether it has something to submit that waits for nothing, not for a turn either: it is to be tried now. */
bool fgw_turn_has_to_try(const struct fgw_worker *worker);
/* Tells how much longer its limit keeps it from a turn that it wants; UINT64_MAX: it does not. */
uint64_t fgw_turn_held_back_ns(const struct fgw_worker *worker, uint64_t now_ns);
/* Tells whether the worker is about to give the grant back. */
bool fgw_turn_may_change(const struct fgw_worker *worker);

/* Tells whether turns are wanted for a backlog. */
static inline void fgw_turn_set_backlog(struct fgw_worker *worker, bool has_backlog)
{
    worker->turn->has_backlog = has_backlog;
}

static inline void fgw_turn_set_gated(struct fgw_worker *worker, bool is_gated)
{
    worker->turn->is_gated = is_gated;
}

static inline void fgw_turn_set_awaited(struct fgw_worker *worker, bool is_awaited)
{
    worker->turn->is_awaited = is_awaited;
}

static inline void fgw_turn_set_displaced(struct fgw_worker *worker, bool is_displaced)
{
    worker->turn->is_displaced = is_displaced;
}

/* Tells whether a displaced worker has something to submit, or to make of its memory. */
static inline bool fgw_turn_awaits_memory(const struct fgw_worker *worker)
{
    const struct fgw_turn *turn = worker->turn;
    return turn->is_displaced && ((turn->has_backlog && !turn->is_gated) || turn->is_awaited);
}

static inline void fgw_turn_set_wanted_behind(struct fgw_worker *worker, bool is_wanted)
{
    worker->turn->is_wanted_behind = is_wanted;
}

#endif
