/*
 * Equals of all of the client's objects, in contexts on another device: made by the rules of docs/objects.md for a
 * worker that is none, so that what they take is counted to nobody while the client's own are there. Then the two sets
 * change places, and what was before goes with the equals.
 *
 * Memory pools and links stay what they are: nothing of them is on a device.
 */
#ifndef BACKEND_HOST_WORKER_REPLAY_EQUALS_H
#define BACKEND_HOST_WORKER_REPLAY_EQUALS_H

#include "calls/objects.h"
#include "client/kind.h"
#include "client/state.h"

/* Of these nothing is saved. */
#define FGW_EQUALS_LEFT_OUT (FGW_BELOW(FGV_HANDLE_MEMORY_POOL) | FGW_BELOW(FGV_HANDLE_LINK))

struct fgw_equals;

/* None yet; NULL: no memory. `driver` counts nothing. */
struct fgw_equals *fgw_equals_new(const struct fgw_worker *worker, const struct fgv_driver *driver, CUdevice device);
/* One that is there when they are made: what is asked there, no call of the program waits for. NULL: none. */
CUcontext fgw_equals_context(const struct fgw_equals *equals);
/* Makes them from what was saved. It says why not, NULL: all are there. By any thread. */
const char *fgw_equals_make(struct fgw_equals *equals, const struct fgw_saver *saved);
/* Makes them be those of `now`, what was saved since (fgw_objects_follow). */
const char *fgw_equals_follow(struct fgw_equals *equals, const struct fgw_saver *before, const struct fgw_saver *now);
/* The client's handles name these, and the equals have what they named before. By the worker's own thread, while
 * nothing of the client's is under way. False: not all are there, and nothing has changed. */
bool fgw_equals_exchange(struct fgw_equals *equals, struct fgw_worker *worker);
/* Where the equals have a variable that the client was told of, in whose context the thread is then. False: they have
 * no such variable of this size. */
bool fgw_equals_variable(struct fgw_equals *equals, const struct fgw_told_variable *variable, uint64_t *address);
/* What the equals have of an event by this number, NULL: nothing. */
CUevent fgw_equals_event(const struct fgw_equals *equals, uint64_t number);
/* Everything that they have goes. By any thread. */
void fgw_equals_drop(struct fgw_equals *equals);

#endif
