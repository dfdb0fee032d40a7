/* Streams: what the guest knows of each. */
#ifndef FRONTEND_GUEST_STREAM_H
#define FRONTEND_GUEST_STREAM_H

#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_context;

struct fgv_stream {
    struct fgv_context *context;
    uint64_t context_handle;
    uint64_t id;
    uint32_t flags;
    int32_t priority;
    CUgraphNode *captured; /* what cuStreamGetCaptureInfo gave last: the program may read it until it asks again */
    CUgraphEdgeData *captured_edges;
};

/* The number of a stream on the wire, or FGV_STREAM_INVALID. Makes the calling thread's own stream when it is asked for
 * first. */
uint64_t fgv_stream_wire(CUstream stream);
/* The record of a stream, special ones included; NULL when bad or without memory. Readable for as long as the stream
 * lives. */
CUresult fgv_stream_find(CUstream stream, struct fgv_stream **record);
void fgv_stream_forget_context(struct fgv_context *context);
/* Destroys the calling thread's own streams. */
void fgv_stream_thread_ends(void);

#endif
