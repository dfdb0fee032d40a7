/*
 * The guest's numbers and the driver's objects behind them, and what hangs on them: see handles.c.
 */
#ifndef BACKEND_HOST_HANDLES_H
#define BACKEND_HOST_HANDLES_H

#include "client/service.h"
#include "client/state.h"

#define FGV_MAX_HANDLES (1u << 20)

/* `releases` has FGV_HANDLE_KINDS entries. */
bool fgv_handles_init(struct fgv_worker *worker, const fgv_release *releases);
/* The client has ended, and its streams went with their contexts: whatever is left is released, in no order. */
void fgv_handles_end(struct fgv_worker *worker);
struct fgv_handle *fgv_handle_find(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* What the driver's object is known as, 0: it has no number. Only for kinds that the worker numbers. */
uint64_t fgv_handle_number(struct fgv_worker *worker, enum fgv_handle_kind kind, const void *native);
/* Makes fgv_handle_number find it. False: no memory. */
bool fgv_handle_remember_native(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Looks through all handles of a kind for the driver's object; NULL when it is none of them. */
struct fgv_handle *fgv_handle_of_native(struct fgv_worker *worker, enum fgv_handle_kind kind, const void *native);
/* The stream of this number in the current context, or NULL. 0 and 1: the legacy one, 2: the per-thread one. */
struct fgv_stream *fgv_stream_find(struct fgv_worker *worker, uint64_t number);
void fgv_handles_drop_context(struct fgv_worker *worker, struct fgv_context *context);

#endif
