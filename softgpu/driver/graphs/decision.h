/*
 * Conditional nodes of what is instantiated: when its stream comes to one, the word is looked at, and a body runs, or
 * runs again, in a stream aside, while the stream waits. With the driver's lock.
 */
#ifndef SOFTGPU_DECISION_H
#define SOFTGPU_DECISION_H

#include "graphs/condition.h"
#include "stream/records.h"

struct CUgraphExec_st;

struct sgp_decision {
    uint32_t nr_references; /* of the node, and of each command on its way */
    struct sgp_condition *condition;
    CUgraphConditionalNodeType type;
    unsigned int nr_bodies;
    struct CUgraphExec_st **bodies;
    struct CUstream_st *aside;
};

/* What a decision does with its bodies. */
struct sgp_body_ops {
    CUresult (*queue)(const struct CUgraphExec_st *body, struct CUstream_st *stream);
    void (*end)(struct CUgraphExec_st *body);
};

void sgp_decision_set_ops(const struct sgp_body_ops *ops);
/* Without bodies yet, of which there is room for so many. */
CUresult sgp_decision_new(struct CUctx_st *context, struct sgp_condition *condition, CUgraphConditionalNodeType type,
                          unsigned int nr_bodies, struct sgp_decision **made);
void sgp_decision_release(struct sgp_decision *decision);
CUresult sgp_decision_submit(struct sgp_decision *decision, struct CUstream_st *stream);

#endif
