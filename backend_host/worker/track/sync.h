/* Tells what of the submitted work is done: see sync.c. */
#ifndef BACKEND_HOST_SYNC_H
#define BACKEND_HOST_SYNC_H

#include "client/service.h"
#include "track/state.h"

void fgw_sync_submitted(struct fgw_worker *worker, struct fgw_stream *stream);
/* The chunk is completed once everything submitted to the stream so far is done; false: no memory, complete it now. */
bool fgw_sync_chunk(struct fgw_worker *worker, struct fgw_stream *stream, uint32_t chunk, bool is_urgent);
/* Makes the end of everything submitted visible, with an event in each stream that lacks one. */
void fgw_sync_mark_all(struct fgw_worker *worker);
bool fgw_sync_poll(struct fgw_worker *worker, uint64_t now_ns);
/* Waits until all submitted work is done, for a moment at most. */
void fgw_sync_settle(struct fgw_worker *worker, uint64_t limit_ns);
/* All that is unfinished, and what comes in its streams until they are prepared anew, is in no turn. Returns how many.
 */
uint32_t fgw_sync_set_beside(struct fgw_worker *worker);
/* No mark of this stream comes any more: what has none is over with the last mark that there is. */
void fgw_sync_end_marks(struct fgw_worker *worker, struct fgw_stream *stream);
/* Nothing of this stream will be heard of again. */
void fgw_sync_finish_stream(struct fgw_worker *worker, struct fgw_stream *stream, CUresult result);
void fgw_sync_fault(struct fgw_worker *worker, struct fgw_context *context, CUresult result);

/* Everything so far in the stream is marked afterwards, or the context has failed; false: nothing can be recorded here.
 */
bool fgw_stream_mark(struct fgw_worker *worker, struct fgw_stream *stream);
/* What the guest put into the stream is no work of its own, but may have to wait for other streams' work. */
void fgw_stream_touch(struct fgw_worker *worker, struct fgw_stream *stream);

#endif
