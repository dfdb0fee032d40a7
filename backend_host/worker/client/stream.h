/* Streams of a context, the client's and the worker's own, as far as the driver knows them. */
#ifndef BACKEND_HOST_STREAM_H
#define BACKEND_HOST_STREAM_H

#include "client/state.h"

void fgv_stream_init(struct fgv_stream *stream, struct fgv_context *context, CUstream native);
struct fgv_stream *fgv_stream_new(struct fgv_context *context, CUstream native);
/* Takes it out of the list of its context. */
void fgv_stream_remove(struct fgv_stream *stream);
void fgv_stream_free_if_unused(struct fgv_stream *stream);

bool fgv_stream_is_captured(struct fgv_worker *worker, const struct fgv_stream *stream);
/* `graph`: the number of the graph that it makes, which goes with the stream; 0: the guest made it. */
void fgv_stream_capture_begins(struct fgv_worker *worker, struct fgv_stream *stream, uint64_t graph);
void fgv_stream_capture_ends(struct fgv_worker *worker, struct fgv_stream *stream);

#endif
