/* A graph is instantiated as its work in an order in which it can run. With the lock. */
#ifndef SOFTGPU_GRAPH_EXEC_H
#define SOFTGPU_GRAPH_EXEC_H

#include "graphs/decision.h"
#include "graphs/graph.h"

struct sgp_exec_node {
    uint64_t id; /* of the graph's node */
    struct sgp_work work;
    struct CUgraphExec_st *child;
    struct sgp_decision *decision; /* of a conditional node */
    uint32_t *dependencies;        /* places in the order */
    uint32_t nr_dependencies;
    bool is_enabled;
};

struct sgp_order_book;

struct CUgraphExec_st {
    struct sgp_object object;
    struct sgp_exec_node *nodes;
    uint32_t nr_nodes;
    uint64_t flags;
    struct CUstream_st *last; /* launched last in; the next launch waits for that one */
    uint64_t sequence;
    struct sgp_order_book *book; /* NULL: none yet, or its kernels order nothing (orders.h) */
};

CUresult sgp_exec_make(struct CUgraph_st *graph, struct CUgraphExec_st **made);
void sgp_exec_delete(struct CUgraphExec_st *exec);
static inline CUresult sgp_enter_exec(CUgraphExec exec)
{
    return sgp_enter_object(exec, SGP_EXEC, CUDA_ERROR_INVALID_VALUE);
}

#endif
