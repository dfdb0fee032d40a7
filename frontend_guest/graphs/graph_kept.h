/* What CUDA owns and the program may read of graphs, and what a graph dies with. */
#ifndef FRONTEND_GUEST_GRAPH_KEPT_H
#define FRONTEND_GUEST_GRAPH_KEPT_H

#include <stddef.h>
#include <stdint.h>

/* Memory that the program reads and CUDA owns, one block for a node. The same block again when its size
 * is the same; NULL without memory. */
void *fgv_kept_block(uint64_t node, uint64_t root, size_t bytes);
void fgv_kept_drop(uint64_t node);
/* The graph that this one dies with: a child graph of a node is found once the program was told of it. */
uint64_t fgv_kept_root(uint64_t graph);
/* A graph is gone, and all in it. */
void fgv_graph_forget(uint64_t graph);

#endif
