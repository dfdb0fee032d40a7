/*
 * What the handle of a conditional node stands for: a word of device memory, which kernels write and the node looks at.
 * The handle is its address. All with the driver's lock.
 */
#ifndef SOFTGPU_CONDITION_H
#define SOFTGPU_CONDITION_H

#include "base/driver.h"

struct CUgraph_st;
struct CUstream_st;
struct sgp_condition;

/* For one node of the graph, which has the only reference. */
CUresult sgp_condition_new(struct CUctx_st *context, const struct CUgraph_st *graph, unsigned int value,
                           unsigned int flags, struct sgp_condition **made);
CUgraphConditionalHandle sgp_condition_handle(const struct sgp_condition *condition);
/* The graph's, for the one node that may have it, with a reference; NULL: it is none, or has its node. */
struct sgp_condition *sgp_condition_take(CUgraphConditionalHandle handle, const struct CUgraph_st *graph);
void sgp_condition_keep(struct sgp_condition *condition);
void sgp_condition_release(struct sgp_condition *condition);
/* The graph goes, and its references with it. */
void sgp_condition_forget_graph(const struct CUgraph_st *graph);
unsigned int sgp_condition_value(const struct sgp_condition *condition);
/* Queues that it gets its default, if it has one for each launch. */
CUresult sgp_condition_assign(const struct sgp_condition *condition, struct CUstream_st *stream);

#endif
