/* Graphs, their nodes, what is instantiated of them, and streams that are being captured. All with the driver's lock.
 */
#ifndef SOFTGPU_GRAPH_H
#define SOFTGPU_GRAPH_H

#include "work.h"

struct CUgraphNode_st {
    struct sgp_object object;
    struct CUgraph_st *graph;
    struct CUgraphNode_st *next;
    uint64_t id;
    uint64_t origin_id; /* of the node that this one was cloned from */
    struct sgp_work work;
    struct CUgraphNode_st **dependencies;
    uint32_t nr_dependencies;
    uint32_t mark; /* used by whoever walks the graph */
};

struct CUgraph_st {
    struct sgp_object object;
    struct CUgraphNode_st *first, *last; /* in the order in which they were added */
    uint32_t nr_nodes;
    uint64_t id;
    struct CUgraphNode_st *owner; /* the node whose child graph this is */
};

struct sgp_capture {
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

/* A set of nodes, each once. */
struct sgp_nodes {
    struct CUgraphNode_st **items;
    uint32_t nr;
};

/* graph.c */
struct CUgraph_st *sgp_graph_new(void);
void sgp_graph_delete(struct CUgraph_st *graph); /* its handle and those of its nodes are gone */
CUresult sgp_graph_clone(const struct CUgraph_st *original, struct CUgraph_st **clone);
/* Takes over `work` when it succeeds. */
CUresult sgp_node_add(struct CUgraph_st *graph, struct CUgraphNode_st *const *dependencies, size_t nr_dependencies,
                      struct sgp_work *work, struct CUgraphNode_st **node);
CUresult sgp_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on);
/* The nodes so that each stands after what it depends on; CUDA_ERROR_INVALID_VALUE for a cycle. The caller frees. */
CUresult sgp_graph_order(struct CUgraph_st *graph, struct CUgraphNode_st ***order);
bool sgp_edges_are_plain(const CUgraphEdgeData *edges, size_t nr);

/* graph_nodes.c */
CUresult sgp_work_of_params(struct sgp_work *work, struct CUctx_st *context, const CUgraphNodeParams *params);

/* capture.c */
bool sgp_nodes_add(struct sgp_nodes *nodes, struct CUgraphNode_st *node);
void sgp_nodes_clear(struct sgp_nodes *nodes);
/* Makes the work a node behind what the stream did so far. Takes the work over, whatever comes of it. */
CUresult sgp_capture_work(struct CUstream_st *stream, struct sgp_work *work);
/* Whether a command may be queued in the stream: not while it is captured, nor in the legacy stream beside a blocking
 * stream that is. */
CUresult sgp_capture_gate(struct CUstream_st *stream);
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
