/*
 * The guest's numbers and the driver's objects behind them, and what hangs on them: see handles.c.
 */
#ifndef BACKEND_HOST_HANDLES_H
#define BACKEND_HOST_HANDLES_H

#include "client/service.h"
#include "client/state.h"

#define FGW_MAX_HANDLES (1u << 20)

/* `releases` has FGV_HANDLE_KINDS entries. */
bool fgw_handles_init(struct fgw_worker *worker, const fgw_release *releases);
/* The client has ended, and its streams went with their contexts: whatever is left is released, in no order. */
void fgw_handles_end(struct fgw_worker *worker);
struct fgw_handle *fgw_handle_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Tells what the driver's object is known as, 0: it has no number. Only for kinds that the worker numbers. */
uint64_t fgw_handle_number(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native);
/* Makes fgw_handle_number find it. False: no memory. */
bool fgw_handle_remember_native(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Looks through all handles of a kind for the driver's object; NULL when it is none of them. */
struct fgw_handle *fgw_handle_of_native(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native);
/* The stream of this number in the current context, or NULL. 0 and 1: the legacy one, 2: the per-thread one. */
struct fgw_stream *fgw_stream_find(struct fgw_worker *worker, uint64_t number);
void fgw_handles_drop_context(struct fgw_worker *worker, struct fgw_context *context);

#endif
