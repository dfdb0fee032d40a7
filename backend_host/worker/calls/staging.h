/*
 * Copies of graphs from and to the program's ordinary memory, which the driver cannot reach. The driver copies from a
 * buffer in the guest's heap that the guest fills when the graph comes there, or to one that the guest drains then: by
 * a host node in front of the copy, or behind it.
 *
 * Such a node is the worker's. No number names it, and whatever the guest asks or says about edges of the copy is
 * brought into line here. It is known by its function and its place alone, so there are no books to keep for clones,
 * child graphs and captures.
 *
 * Wrong when: a copy that was instantiated with memory that the driver reaches becomes one with ordinary memory:
 * nothing can be put into what is instantiated. CUDA_ERROR_NOT_SUPPORTED. When a capture ends between a host node and
 * its copy: the node has no copy, and edges through it are not told.
 */
#ifndef BACKEND_HOST_STAGING_H
#define BACKEND_HOST_STAGING_H

#include "client/service.h"
#include "client/state.h"

/* The guest's numbers of what fills the buffer and what drains it; 0: neither is needed. */
struct fgw_staging {
    uint64_t fill, drain;
};

/* A node, the copy's if there is staging, behind `nr` others; made whole or not at all. */
CUresult fgw_staging_add(struct fgw_worker *worker, CUgraph graph, const CUgraphNode *behind,
                         const CUgraphEdgeData *data, uint32_t nr, const struct fgw_staging *staging,
                         CUgraphNodeParams *params, CUgraphNode *node);
/* Gives the copy these parameters and this staging, in its graph (exec NULL) or in what is instantiated of it. */
CUresult fgw_staging_set(struct fgw_worker *worker, CUgraphExec exec, CUgraphNode node, CUgraph graph,
                         const struct fgw_staging *staging, CUgraphNodeParams *params);
/* Destroys the node, and with a copy what stages it. */
CUresult fgw_staging_destroy(struct fgw_worker *worker, CUgraphNode node);
/* The same for whether it runs. */
CUresult fgw_staging_set_enabled(struct fgw_worker *worker, CUgraphExec exec, CUgraphNode node,
                                 unsigned int is_enabled);

/* Where edges to the node end for the driver, and where edges from it begin. */
CUgraphNode fgw_staging_first(const struct fgw_worker *worker, CUgraphNode node);
CUgraphNode fgw_staging_last(const struct fgw_worker *worker, CUgraphNode node);
/* The node as the guest knows it: of a staging node its copy, NULL where there is none. */
CUgraphNode fgw_staging_known(const struct fgw_worker *worker, CUgraphNode node);
/* The numbers that stage the copy in its graph. */
void fgw_staging_numbers(const struct fgw_worker *worker, CUgraphNode copy, uint64_t *fill, uint64_t *drain);
/* Takes staging nodes out of a list (of graph_list), and edges between them and their copies; how many are left. */
size_t fgw_staging_leave_out(const struct fgw_worker *worker, uint32_t list, CUgraphNode *nodes, CUgraphNode *ends,
                             CUgraphEdgeData *data, size_t nr);

#endif
