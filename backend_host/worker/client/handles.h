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
/* Handles come as copies; one whose number is 0 is none. */
struct fgw_handle fgw_handle_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* What the handle goes with; none: with the client alone. */
struct fgw_handle fgw_handle_above(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Goes through all of this kind, with an `at` that is 0 at first. False: there are no more. */
bool fgw_handle_next(struct fgw_worker *worker, enum fgv_handle_kind kind, uint32_t *at, struct fgw_handle *handle);
/* Goes down the tree likewise, from the top and the oldest first. */
bool fgw_handle_down(struct fgw_worker *worker, uint32_t *at, struct fgw_handle *handle);
/* Tells how many handles of this kind there are. */
uint32_t fgw_handles_nr(const struct fgw_worker *worker, enum fgv_handle_kind kind);
/* This hangs on the handle from now on; what hung there is the caller's. */
void fgw_handle_hang(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *object);
/* A module or a library has managed variables. False: that is known, or it is not there. */
bool fgw_handle_set_managed(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* For so much memory of the driver's the client was charged. */
void fgw_handle_charge(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint64_t taken_bytes);
/* Of an event: what it was recorded behind waits for this host function. */
void fgw_handle_put_behind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint64_t host);
/* Of an event: it was recorded at this place in its stream. */
void fgw_handle_record(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint64_t seq);
/* Tells what the driver's object is known as, 0: it has no number. Only for kinds that are found by native. */
uint64_t fgw_handle_number(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native);
/* Makes fgw_handle_number find it. False: no memory. */
bool fgw_handle_remember_native(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Looks through all handles of a kind for the driver's object. */
struct fgw_handle fgw_handle_of_native(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native);
/* The stream of this number in the current context, or NULL. 0 and 1: the legacy one, 2: the per-thread one. */
struct fgw_stream *fgw_stream_find(struct fgw_worker *worker, uint64_t number);
/* The driver's objects behind this worker's handles, but those of the kinds in `left_out` (FGW_BELOW), are those of
 * `other` from now on, which has this one's for them. False: the other has not all of them, and nothing has changed. */
bool fgw_handles_exchange(struct fgw_worker *worker, struct fgw_worker *other, uint32_t left_out);
/* The context is about to be destroyed: all that lives in it goes, the newest first, and then its own number. */
void fgw_handles_drop_context(struct fgw_worker *worker, const struct fgw_context *context);

#endif
