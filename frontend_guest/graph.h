/*
 * Graphs. The host numbers graphs and nodes and knows what is in them; the guest keeps what the program may read
 * through pointers that CUDA owns, and user objects, whose destructors are functions of the program.
 */
#ifndef FRONTEND_GUEST_GRAPH_H
#define FRONTEND_GUEST_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* Nodes and edge data in a payload: nodes, then ends if there are any, then data if there is any. */
#define FGV_MAX_EDGES 32768u
static inline bool fgv_edges_fit(size_t nr)
{
    return nr <= FGV_MAX_EDGES;
}
uint32_t fgv_edges_bytes(size_t nr, bool has_ends, const CUgraphEdgeData *data);
uint8_t *fgv_edges_write(uint8_t *to, const CUgraphNode *nodes, const CUgraphNode *ends, const CUgraphEdgeData *data,
                         size_t nr);

/* graph_kept.c: memory that the program reads and CUDA owns, one block for a node. The same block again when its size
 * is the same; NULL without memory. */
void *fgv_kept_block(uint64_t node, uint64_t root, size_t bytes);
void fgv_kept_drop(uint64_t node);
/* The graph that this one dies with: a child graph of a node is found once the program was told of it. */
uint64_t fgv_kept_root(uint64_t graph);
/* A graph is gone, and all in it. */
void fgv_graph_forget(uint64_t graph);

/* graph_host.c: host functions in graphs, which run at every launch. Put into the graph that the stream captures. */
CUresult fgv_graph_host_capture(uint64_t stream, CUhostFn function, void *data);
/* The owner, a graph or what was instantiated of one, has a node with the function of this number, which was kept for
 * it. */
void fgv_graph_host_own(uint64_t owner, uint64_t number);

#endif
