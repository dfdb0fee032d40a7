/*
 * A capture, as streams and events see it, tells who is in it, what is refused beside it, and where the work of a
 * captured stream goes. All with the driver's lock.
 */
#ifndef SOFTGPU_CAPTURE_H
#define SOFTGPU_CAPTURE_H

#include "stream/records.h"

struct sgp_box;
struct sgp_launch;
struct sgp_values;

/* Where the work of a captured stream goes, instead of into its queue. Each makes it a node behind what the stream did
 * so far; `context` is what it runs in. */
struct sgp_sink {
    CUresult (*launch)(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_launch *launch,
                       void **parameters, void **extra);
    CUresult (*copy)(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_box *box);
    CUresult (*set)(struct CUctx_st *context, struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set);
    CUresult (*host)(struct CUstream_st *stream, CUhostFn function, void *data);
    CUresult (*event)(struct CUstream_st *stream, struct CUevent_st *event, CUgraphNodeType type);
    CUresult (*values)(struct CUstream_st *stream, struct sgp_values *values); /* takes them over */
    CUresult (*allocate)(struct CUstream_st *stream, uint64_t bytes, CUdeviceptr *address);
    CUresult (*free)(struct CUstream_st *stream, CUdeviceptr address);
    void (*drop)(struct CUgraph_st *graph); /* of a capture that nothing came of */
};

struct sgp_capture {
    const struct sgp_sink *sink;
    uint32_t nr_references;
    struct sgp_capture *next; /* of all that are not over */
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    struct CUctx_st *context;
    uint64_t id;
    CUstreamCaptureMode mode;
    uint64_t thread;
    bool is_into_graph; /* the program's own graph */
    bool is_invalidated;
    bool is_over;
};

bool sgp_nodes_add(struct sgp_nodes *nodes, struct CUgraphNode_st *node);
void sgp_nodes_replace(struct sgp_nodes *nodes, const struct sgp_nodes *by); /* takes `by` over */

CUresult sgp_capture_begin(struct CUstream_st *stream, const struct sgp_sink *sink, struct CUgraph_st *graph,
                           bool is_into_graph, CUstreamCaptureMode mode);
/* Ends it everywhere; the graph goes unless it is the program's. */
void sgp_capture_end(struct sgp_capture *capture, bool keeps_graph);
CUresult sgp_capture_invalidate(struct sgp_capture *capture, CUresult result); /* returns `result` */
bool sgp_capture_is_own(const struct sgp_capture *capture);                    /* begun by the calling thread */
bool sgp_graph_is_captured(const struct CUgraph_st *graph);
/* Of a stream of the context that takes part in the legacy stream's order; NULL: of none. */
struct sgp_capture *sgp_capture_blocking(const struct CUctx_st *context);

/* Whether a command may be queued in the stream: not while it is captured, nor in the legacy stream beside a blocking
 * stream that is. */
CUresult sgp_capture_check(struct CUstream_st *stream);
/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures are invalidated, when the calling thread may not do what is
 * unsafe during captures. */
CUresult sgp_capture_forbid_unsafe(void);
/* As for a synchronisation of the whole context. */
CUresult sgp_capture_forbid_context(const struct CUctx_st *context);
CUresult sgp_capture_event_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags);
CUresult sgp_capture_event_wait(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags);
/* CUDA_ERROR_CAPTURED_EVENT, and the capture is invalidated, for an event that was last recorded in one. */
CUresult sgp_capture_event_check(struct CUevent_st *event);
void sgp_capture_event_forget(struct CUevent_st *event);
void sgp_capture_stream_gone(struct CUstream_st *stream);

#endif
