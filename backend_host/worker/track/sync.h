/* What of the submitted work is done: see sync.c. */
#ifndef BACKEND_HOST_SYNC_H
#define BACKEND_HOST_SYNC_H

#include "client/service.h"
#include "track/state.h"

void fgv_sync_submitted(struct fgv_worker *worker, struct fgv_stream *stream);
/* The chunk is completed once everything submitted to the stream so far is done; false: no memory, complete it now. */
bool fgv_sync_chunk(struct fgv_worker *worker, struct fgv_stream *stream, uint32_t chunk, bool is_urgent);
/* Makes the end of everything submitted visible, with an event in each stream that lacks one. */
void fgv_sync_mark_all(struct fgv_worker *worker);
bool fgv_sync_poll(struct fgv_worker *worker, uint64_t now_ns);
/* Waits until all submitted work is done, for a moment at most. */
void fgv_sync_settle(struct fgv_worker *worker, uint64_t limit_ns);
/* All that is unfinished, and what comes in its streams until they are prepared anew, is in no turn. How many. */
uint32_t fgv_sync_set_beside(struct fgv_worker *worker);
/* A destroyed stream's work goes on: it is marked while that is still possible. */
void fgv_sync_before_destroy(struct fgv_worker *worker, const struct fgv_request *request);
void fgv_stream_release(struct fgv_worker *worker, const struct fgv_handle *handle);
void fgv_sync_fault(struct fgv_worker *worker, struct fgv_context *context, CUresult result);
/* Everything about streams of a context that is about to be destroyed; waiters and chunks are answered. */
void fgv_sync_drop_context(struct fgv_worker *worker, struct fgv_context *context);

/* Everything so far in the stream is marked afterwards, or the context has failed; false: nothing can be recorded here.
 */
bool fgv_stream_mark(struct fgv_worker *worker, struct fgv_stream *stream);
/* What the guest put into the stream is no work of its own, but may have to wait for other streams' work. */
void fgv_stream_touch(struct fgv_worker *worker, struct fgv_stream *stream);

#endif
