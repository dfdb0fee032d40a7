/*
 * Module variables of a client that changes its device within its process. Kernels find theirs by themselves; by
 * addresses that it was told (client/told.h) the client may have written some, so those are copied, and are known from
 * then on by where they are on the other device.
 *
 * That does not do for an address which kernels find in memory. So memory is looked through for words that are one.
 */
#ifndef BACKEND_HOST_WORKER_REPLAY_VARIABLES_H
#define BACKEND_HOST_WORKER_REPLAY_VARIABLES_H

#include "client/state.h"
#include "replay/ahead.h"
#include "replay/equals.h"

/* Notes of each variable where the equals have it, and copies what is in it. By any thread, in the context that memory
 * is copied in, while the client does nothing. It says why not, and in `bound` by an enum fgw_bound. */
const char *fgw_variables_follow(struct fgw_worker *worker, struct fgw_equals *equals, const struct fgw_ahead *ahead,
                                 uint32_t *bound);

#endif
