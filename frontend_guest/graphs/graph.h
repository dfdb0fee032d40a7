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

#endif
