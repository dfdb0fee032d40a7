/*
 * Linear memory brought out of the device, into memory of this process, and back, where more is allocated than there is
 * room for (room.h). Addresses stay; the memory there is made anew.
 *
 * What goes is what is beyond the target, and only while nothing of the client's is in flight. What is to be submitted
 * needs all of its memory, as nobody knows which of it a kernel uses: until that is there the worker is displaced
 * (turn.h) and waits for no turn. Copies go in a stream of the worker's own, are charged to nobody and need no turn.
 *
 * A copy that was made is kept until its extent is freed: there is memory for all of them (`swap` of the
 * configuration). After a suspension it is not, where there is room for all. What is as it was when it was copied is
 * not copied again, which fingerprints tell.
 */
#ifndef BACKEND_HOST_WORKER_SWAP_H
#define BACKEND_HOST_WORKER_SWAP_H

#include "calls/state.h"

/* A look at each round; `is_settled`: nothing of the client's is in flight, and nobody waits for its end. True: all
 * stands differently now. */
bool fgw_swap_poll(struct fgw_worker *worker, bool is_settled, uint64_t now_ns);

/* Tells whether the host has memory for all that may go, or will have none. */
bool fgw_swap_is_prepared(const struct fgw_worker *worker);
/* Tells whether nothing more is to go that can. */
bool fgw_swap_is_out(const struct fgw_worker *worker);

/* Tells whether bytes are on their way. Until they have come nothing is to be made or freed. */
static inline bool fgw_swap_is_moving(const struct fgw_worker *worker)
{
    return worker->calls->swap.nr_moves != 0;
}

/* Tells whether memory of this process is kept for what was brought out. */
static inline bool fgw_swap_has_copies(const struct fgw_worker *worker)
{
    return worker->calls->swap.copies.nr != 0;
}

/* Tells whether there is more to do without the client. */
bool fgw_swap_is_at_work(const struct fgw_worker *worker);
/* The client calls: it is not suspended any more. */
void fgw_swap_wake(struct fgw_worker *worker);

/* The extent is freed. */
void fgw_swap_forget(struct fgw_worker *worker, uint64_t address);
/* The context goes, and nothing moves. */
void fgw_swap_drop_context(struct fgw_worker *worker, const struct fgw_context *context);
/* The client has ended; its contexts are there. */
void fgw_swap_drop(struct fgw_worker *worker);

#endif
