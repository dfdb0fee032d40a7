/* Streams are made and found here, and waited for. With the lock. */
#ifndef SOFTGPU_STREAM_H
#define SOFTGPU_STREAM_H

#include "stream/records.h"

CUresult sgp_enter_stream(CUstream handle, struct CUstream_st **stream); /* as sgp_enter_by */
CUresult sgp_stream_resolve(struct CUctx_st *context, CUstream stream, struct CUstream_st **resolved);
struct CUstream_st *sgp_stream_new(struct CUctx_st *context, unsigned int flags, int priority);
/* Its handle goes. What is queued still runs: the queue holds on to the stream until then. */
void sgp_stream_end(struct CUstream_st *stream);
/* What the stream does from here on waits until `other` has completed that much. */
CUresult sgp_stream_wait(struct CUstream_st *stream, struct CUstream_st *other, uint64_t sequence);
CUresult sgp_host_submit(struct CUstream_st *stream, CUstream handle, CUhostFn function, CUstreamCallback callback,
                         void *data);

/* event.c */
/* `shared`, or NULL, becomes the event's. NULL: no memory. */
struct CUevent_st *sgp_event_new(struct CUctx_st *context, unsigned int flags, struct sgp_shared_event *shared);
/* What the stream does from here on waits for the event's last record. */
CUresult sgp_event_wait(struct CUstream_st *stream, struct CUevent_st *event);
CUresult sgp_event_record(struct CUevent_st *event, struct CUstream_st *stream);

#endif
