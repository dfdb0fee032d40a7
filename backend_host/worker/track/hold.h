/*
 * What stands behind host functions of the guest (calls/host_function.h). While such a function runs the device is not
 * in use by what stands behind it. Such submissions are held: they are counted apart, charged to nobody and no reason
 * to keep the grant. What is known to stand behind a host function: what follows in its stream, what follows an event
 * recorded there, and the order of the legacy default stream. What depends on two is held by the newer one.
 */
#ifndef BACKEND_HOST_HOLD_H
#define BACKEND_HOST_HOLD_H

#include "client/service.h"
#include "track/state.h"

/* Before a call that puts something into the stream: what it will be held by. */
void fgv_hold_before(struct fgv_worker *worker, const struct fgv_service *service, struct fgv_stream *stream);
/* After such a call has succeeded: events carry on what holds a stream. */
void fgv_hold_after(struct fgv_worker *worker, const struct fgv_service *service, const struct fgv_request *request,
                    struct fgv_stream *stream);

/* A function is about to be put into a stream, under a number of its own; it was; what follows in the stream is held.
 */
struct fgv_hold *fgv_hold_open(struct fgv_worker *worker, uint32_t index);
void fgv_hold_stream(struct fgv_worker *worker, struct fgv_stream *stream, uint64_t order);
/* What was held goes on: the device may be working on it. */
void fgv_hold_release(struct fgv_worker *worker, struct fgv_hold *hold);
/* The function is over; what it holds is let go. */
void fgv_hold_close(struct fgv_worker *worker, struct fgv_hold *hold);
/* A graph has a function of the guest's in it. */
void fgv_hold_note_node(struct fgv_worker *worker);

#endif
