/* Copies between the guest's memory and the device: see copy.c. */
#ifndef BACKEND_HOST_COPY_H
#define BACKEND_HOST_COPY_H

#include "client/service.h"
#include "client/state.h"

/* What a request with an arena chunk owes its sender: the chunk, when the copy is done (stream) or at once, when it
 * failed. */
void fgw_copy_settle(struct fgw_worker *worker, const struct fgw_request *request, struct fgw_stream *stream,
                     CUresult result);

#endif
