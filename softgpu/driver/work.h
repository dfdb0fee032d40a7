/*
 * One piece of GPU work as data: what a node of a graph does, and what a call on a capturing stream becomes. All with
 * the driver's lock held.
 */
#ifndef SOFTGPU_WORK_H
#define SOFTGPU_WORK_H

#include "copy.h"
#include "launch.h"

struct sgp_work {
    CUgraphNodeType type;
    struct CUctx_st *context; /* in which it runs; NULL: needs none */
    union {
        struct {
            struct sgp_launch launch;
            uint8_t *parameters; /* packed */
            void **pointers;     /* to each of them */
            int priority;
        } kernel;
        struct sgp_box box;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        struct CUevent_st *event;
        struct CUgraph_st *child;
        struct sgp_graph_memory *memory;
    };
};

/* Makes a kernel's work; the parameters as for a launch. */
CUresult sgp_work_kernel(struct sgp_work *work, struct CUctx_st *context, const struct sgp_launch *launch,
                         void **parameters, void **extra);
/* A copy with references of its own; a child graph is cloned. */
CUresult sgp_work_copy(struct sgp_work *to, const struct sgp_work *from);
/* Gives up what the work refers to. */
void sgp_work_drop(struct sgp_work *work);
/* Queues it now. A child graph is not its affair. */
CUresult sgp_work_submit(const struct sgp_work *work, struct CUstream_st *stream);

#endif
