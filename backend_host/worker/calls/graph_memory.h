/*
 * Memory that graphs allocate, under the vGPU's quota.
 *
 * The driver takes it when a graph is first launched, or uploaded, keeps it for later launches and other graphs, and
 * gives it back when it is told to trim. So what counts is what the driver says that graphs keep, looked at after each
 * such call. Before a graph that has never run, or not since a trim, there must be room for the sum of its allocations:
 * more than it takes where some of them follow each other.
 *
 * Wrong when: a graph ran, another got its memory, and it runs again: that is counted a moment after it was taken, and
 * past the quota no graph with allocations runs before what is kept fits.
 */
#ifndef BACKEND_HOST_GRAPH_MEMORY_H
#define BACKEND_HOST_GRAPH_MEMORY_H

#include "calls/graph.h"

/* Puts the quota in front of the driver's launches. */
void fgw_graph_memory_wrap(struct fgv_driver *driver);
/* Before and after the graph of this number has one more allocation. CUDA_ERROR_NOT_SUPPORTED: it is inside another. */
CUresult fgw_graph_memory_may_add(struct fgw_worker *worker, uint64_t graph, uint64_t bytes);
void fgw_graph_memory_add(struct fgw_worker *worker, uint64_t graph, uint64_t bytes);
/* The graph of this number has one more free. */
void fgw_graph_memory_add_free(struct fgw_worker *worker, uint64_t graph);
/* The graph was instantiated. *is_doubtful: a launch may be refused, as it leaves something allocated, or frees what
 * another graph's left. */
CUresult fgw_graph_memory_instantiated(struct fgw_worker *worker, uint64_t graph, CUgraphExec exec, bool *is_doubtful);
/* What no launch uses is given back. */
void fgw_graph_memory_trim(struct fgw_worker *worker);
/* The client has ended. */
void fgw_graph_memory_drop(struct fgw_worker *worker);

#endif
