/*
 * Events that the guest recorded last in a stream. A mark of the worker's own may stand behind one, and a driver that
 * is asked about the stream then says that it is not done, when the guest has seen that it is: by CUDA's rules a stream
 * is done with all that was put into it, and marks were not put there by the guest.
 *
 * Wrong when: the guest destroys the event between its two questions. The driver's answer stands then, and is late by
 * the time that a mark takes.
 */
#ifndef BACKEND_HOST_RECORDED_H
#define BACKEND_HOST_RECORDED_H

#include "client/service.h"
#include "client/state.h"

/* A call that puts something in its place in the stream has succeeded, and the stream was touched. */
void fgw_recorded_note(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                       struct fgw_stream *stream);
/* Whether this asks about a stream, into which the guest put nothing behind an event that is done. */
bool fgw_recorded_tells_done(struct fgw_worker *worker, const struct fgw_service *service,
                             const struct fgw_request *request);

#endif
