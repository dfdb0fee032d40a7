/* Streams of a context, the client's and the worker's own, as far as the driver knows them. */
#ifndef BACKEND_HOST_STREAM_H
#define BACKEND_HOST_STREAM_H

#include "client/state.h"

void fgw_stream_init(struct fgw_stream *stream, struct fgw_context *context, CUstream native);
struct fgw_stream *fgw_stream_new(struct fgw_context *context, CUstream native);
/* Whether the vGPU may have one more, and has memory for it. */
bool fgw_stream_has_room(struct fgw_worker *worker);
/* The driver's is gone, or about to go. */
void fgw_stream_gone(struct fgw_worker *worker);
/* Makes one of the current context, which hangs on the handle of the driver's. */
CUresult fgw_stream_attach(struct fgw_worker *worker, struct fgw_handle *handle);
/* Takes it out of the list of its context. */
void fgw_stream_remove(struct fgw_stream *stream);
/* A stream of the worker's own in the current context, for what must not wait behind the client's. NULL: there is none
 * to be had. */
CUstream fgw_stream_side(struct fgw_worker *worker);
void fgw_stream_free_if_unused(struct fgw_stream *stream);

/* Tells whether it goes by the order of the legacy default stream. */
bool fgw_stream_is_blocking(struct fgw_worker *worker, const struct fgw_stream *stream);
bool fgw_stream_is_captured(struct fgw_worker *worker, const struct fgw_stream *stream);
/* `graph`: the number of the graph that it makes, which goes with the stream; 0: the guest made it. */
void fgw_stream_capture_begins(struct fgw_worker *worker, struct fgw_stream *stream, uint64_t graph);
void fgw_stream_capture_ends(struct fgw_worker *worker, struct fgw_stream *stream);

#endif
