/*
 * What stands behind host functions of the guest (calls/host_function.h). While such a function runs the device is not
 * in use by what stands behind it. Such submissions are counted apart, charged to nobody and no reason
 * to keep the grant. What is known to stand behind a host function: what follows in its stream, what follows an event
 * recorded there, and the order of the legacy default stream. What depends on two counts as behind the newer one.
 */
#ifndef BACKEND_HOST_BEHIND_H
#define BACKEND_HOST_BEHIND_H

#include "client/service.h"
#include "track/state.h"

/* Finds out what the stream will stand behind, before a call that puts something into it. */
void fgw_behind_before(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream);
/* Such a call has succeeded: events carry on what a stream stands behind. */
void fgw_behind_after(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                      struct fgw_stream *stream);

/* A function is about to be put into a stream, under a number of its own; it was; what follows in the stream stands
 * behind it.
 */
struct fgw_behind *fgw_behind_open(struct fgw_worker *worker, uint32_t index);
void fgw_behind_put_behind(struct fgw_worker *worker, struct fgw_stream *stream, uint64_t number);
/* What stood behind it goes on: the device may be working on it. */
void fgw_behind_release(struct fgw_worker *worker, struct fgw_behind *behind);
/* The function is over; what stands behind it is let go. */
void fgw_behind_close(struct fgw_worker *worker, struct fgw_behind *behind);
/* A graph has a function of the guest's in it. */
void fgw_behind_note_node(struct fgw_worker *worker);

#endif
