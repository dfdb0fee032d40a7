/*
 * A program that changes its device within its process: the fast way of a vGPU that moves (motion.h).
 *
 * While the program runs, a thread makes equals of its objects (equals.h) and copies its memory (ahead.h). Once it
 * stands, what has changed since follows, and what the client's table and addresses name is exchanged for what is on
 * the other device. What was before is kept until the worker goes by the other Gpu's page; until then all of it can be
 * undone.
 */
#ifndef BACKEND_HOST_WORKER_REPLAY_H
#define BACKEND_HOST_WORKER_REPLAY_H

#include "client/state.h"
#include "page/motion.h"

struct fgw_replay;

/* `driver` counts nothing: the calls before others were put in front of them. NULL: no memory. */
struct fgw_replay *fgw_replay_new(const struct fgv_driver *driver);
/* A look at each round of a worker in motion, or that was. `is_settled`: nothing of the client's is in flight. */
void fgw_replay_poll(struct fgw_worker *worker, bool is_settled);
/* Whether there is anything left to look at. */
bool fgw_replay_is_active(const struct fgw_worker *worker);
/* How far it is; not at RUNS while anything is left of what it had ahead, but where that is for good. */
enum fgw_stage fgw_replay_stage(const struct fgw_worker *worker);
/* Why it could not, FGW_BOUND_DEVICE or FGW_BOUND_OBJECTS, since it last began; 0: nothing is known against it. */
uint32_t fgw_replay_bound(const struct fgw_worker *worker);
/* The client's primary context is about to go: the thread lets go of it, and the change comes to nothing. */
void fgw_replay_give_up(struct fgw_worker *worker);
/* It is on the other device for good: what was before goes. */
void fgw_replay_settle(struct fgw_worker *worker);
/* It stays where it was, if it has left. */
void fgw_replay_undo(struct fgw_worker *worker);
/* The client has ended: waits for the thread. */
void fgw_replay_end(struct fgw_worker *worker);

#endif
