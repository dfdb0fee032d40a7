/* The end of streams and contexts, as far as their work is concerned: see ends.c. */
#ifndef BACKEND_HOST_ENDS_H
#define BACKEND_HOST_ENDS_H

#include "client/service.h"
#include "client/state.h"

/* The work of a stream that is about to be destroyed goes on: it is marked while that is still possible. */
void fgw_stream_before_destroy(struct fgw_worker *worker, const struct fgw_request *request);
/* Of the kind `stream`: its number is gone, and its destroyed stream with it, once its work has ended. */
void fgw_stream_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Forgets everything about streams of a context that is about to be destroyed; waiters and chunks are answered. */
void fgw_stream_drop_context(struct fgw_worker *worker, struct fgw_context *context);
/* Whether all that was put into streams is known to have ended, with what nobody has waited for, events that were
 * recorded say. Where it is not, it will be. */
bool fgw_track_is_still(struct fgw_worker *worker);
/* Gives back what this floor has of its own in a context in which nothing is under way. How many marks it had. */
uint32_t fgw_track_leave(struct fgw_worker *worker, struct fgw_context *context);
/* Makes so many marks in a context that is new, and current: a driver that is busy with another one lets nobody make
 * events meanwhile. */
void fgw_track_enter(struct fgw_worker *worker, struct fgw_context *context, uint32_t nr_marks);

#endif
