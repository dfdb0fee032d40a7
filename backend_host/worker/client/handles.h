/*
 * The guest's numbers and the driver's objects behind them, and what hangs on them: see handles.c.
 */
#ifndef BACKEND_HOST_HANDLES_H
#define BACKEND_HOST_HANDLES_H

#include "client/kind.h"
#include "client/service.h"
#include "client/state.h"

/* `kinds` has FGW_NR_KINDS rows. */
bool fgw_handles_init(struct fgw_worker *worker, const struct fgw_kind *kinds);
/* The client has ended, and its contexts are gone: whatever is left goes, the newest first. */
void fgw_handles_end(struct fgw_worker *worker);
struct fgw_handle *fgw_handle_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* What the handle goes with, NULL: with the client alone. */
struct fgw_handle *fgw_handle_above(struct fgw_worker *worker, const struct fgw_handle *handle);
/* The handle of this kind that stands next after `handle`, or the first for NULL. NULL: there are no more. */
struct fgw_handle *fgw_handle_next(struct fgw_worker *worker, enum fgv_handle_kind kind, struct fgw_handle *handle);
/* The handle behind `handle` in the tree, from the top and the oldest first; the first one for NULL, NULL at the end.
 */
struct fgw_handle *fgw_handle_down(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Tells what the driver's object is known as, 0: it has no number. Only for kinds that are found by native. */
uint64_t fgw_handle_number(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native);
/* Makes fgw_handle_number find it. False: no memory. */
bool fgw_handle_remember_native(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Looks through all handles of a kind for the driver's object; NULL when it is none of them. */
struct fgw_handle *fgw_handle_of_native(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native);
/* The stream of this number in the current context, or NULL. 0 and 1: the legacy one, 2: the per-thread one. */
struct fgw_stream *fgw_stream_find(struct fgw_worker *worker, uint64_t number);
/* The context is about to be destroyed: all that lives in it goes, the newest first, and then its own number. */
void fgw_handles_drop_context(struct fgw_worker *worker, const struct fgw_context *context);

#endif
