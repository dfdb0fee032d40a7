/*
 * Graphs of the client and streams that it captures. The driver hands out graphs and nodes that no call of the guest's
 * named, so the worker numbers them, in its answers: bit 63 and 62 set, the kind, then a count that never comes back.
 * Both directions stand in the table of handles; a graph takes its nodes with it, and a node its child graphs.
 */
#ifndef BACKEND_HOST_GRAPH_H
#define BACKEND_HOST_GRAPH_H

#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"

/* Nodes and edges as a payload brings them, translated. */
struct fgw_edges {
    CUgraphNode *nodes;
    CUgraphNode *ends;     /* for records that bring pairs */
    CUgraphEdgeData *data; /* NULL: plain edges */
};

/* Reads nr nodes, as many ends if `has_ends`, and edge data if `has_data`, from the payload. *used_bytes: of it. To be
 * freed with fgw_edges_free, failed or not. */
CUresult fgw_edges_read(struct fgw_worker *worker, const struct fgw_request *request, uint32_t nr, bool has_ends,
                        bool has_data, struct fgw_edges *edges, uint64_t *used_bytes);
void fgw_edges_free(struct fgw_edges *edges);

/* The number of a graph or node of the driver's; a new one when it has none yet. parent_kind FGV_HANDLE_KINDS: the
 * graph stands alone. */
CUresult fgw_graph_number(struct fgw_worker *worker, enum fgv_handle_kind kind, void *native,
                          enum fgv_handle_kind parent_kind, uint64_t parent, uint64_t *number);
/* The graph at the top of what this one, or this node, is in. */
uint64_t fgw_graph_root(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);

/* capture.c: the graph that the stream captures. CUDA_ERROR_ILLEGAL_STATE when it captures none. */
CUresult fgw_capture_graph(struct fgw_worker *worker, CUstream stream, uint64_t *graph);

#endif
