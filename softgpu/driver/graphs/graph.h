/* Graphs have nodes, and each node is a piece of work. All with the driver's lock. */
#ifndef SOFTGPU_GRAPH_H
#define SOFTGPU_GRAPH_H

#include "code/launch.h"
#include "stream/capture.h"
#include "work/copy.h"
#include "work/values.h"

/* A conditional node: what it looks at, and the graphs of which it runs one. */
struct sgp_conditional {
    struct sgp_condition *condition;
    CUgraphConditionalNodeType type;
    unsigned int nr_bodies;
    CUgraph *bodies;
};

/* One piece of GPU work as data: what a node does. */
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
        struct sgp_values *values; /* of a batch of memory operations */
        struct CUgraph_st *child;
        struct sgp_graph_memory *memory;
        struct sgp_conditional *conditional; /* of nodes alone: what is instantiated decides (decision.h) */
    };
};

struct CUgraphNode_st {
    struct sgp_object object;
    struct CUgraph_st *graph;
    struct CUgraphNode_st *next;
    uint64_t id;
    uint64_t origin_id; /* of the node that this one was cloned from */
    struct sgp_work work;
    struct CUgraphNode_st **dependencies;
    uint32_t nr_dependencies;
    uint32_t mark; /* used by whoever walks the graph */
};

struct CUgraph_st {
    struct sgp_object object;
    struct CUgraphNode_st *first, *last; /* in the order in which they were added */
    uint32_t nr_nodes;
    uint64_t id;
    struct CUgraphNode_st *owner; /* the node whose child graph or body this is */
};

/* graph.c */
/* Makes a kernel's work; the parameters as for a launch. */
CUresult sgp_work_kernel(struct sgp_work *work, struct CUctx_st *context, const struct sgp_launch *launch,
                         void **parameters, void **extra);
/* A copy with references of its own; a child graph is cloned. */
CUresult sgp_work_copy(struct sgp_work *to, const struct sgp_work *from);
/* The work of a new node that allocates or frees; the address of what is allocated comes back in params. */
CUresult sgp_work_of_memory(struct sgp_work *work, struct CUctx_st *context, const struct CUgraph_st *graph,
                            CUgraphNodeParams *params);
/* Gives up what the work refers to. */
void sgp_work_drop(struct sgp_work *work);

struct CUgraph_st *sgp_graph_new(void);
void sgp_node_delete(struct CUgraphNode_st *node); /* that no graph has any more */
void sgp_graph_delete(struct CUgraph_st *graph);   /* its handle and those of its nodes are gone */
CUresult sgp_graph_clone(const struct CUgraph_st *original, struct CUgraph_st **clone);
/* Takes over `work` when it succeeds. */
CUresult sgp_node_add(struct CUgraph_st *graph, struct CUgraphNode_st *const *dependencies, size_t nr_dependencies,
                      struct sgp_work *work, struct CUgraphNode_st **node);
CUresult sgp_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on);
/* The nodes so that each stands after what it depends on; CUDA_ERROR_INVALID_VALUE for a cycle. The caller frees. */
CUresult sgp_graph_order(struct CUgraph_st *graph, struct CUgraphNode_st ***order);
bool sgp_edges_are_plain(const CUgraphEdgeData *edges, size_t nr);
bool sgp_graph_has_memory(const struct CUgraph_st *graph);
/* The graph that everything around this one is in. */
const struct CUgraph_st *sgp_graph_root(const struct CUgraph_st *graph);
bool sgp_graph_has_conditions(const struct CUgraph_st *graph);

/* The work of a new conditional node of the graph; params tell of the bodies afterwards. */
CUresult sgp_work_of_condition(struct sgp_work *work, struct CUctx_st *context, const struct CUgraph_st *graph,
                               CUDA_CONDITIONAL_NODE_PARAMS *params);

/* graph_nodes.c */
CUresult sgp_work_of_params(struct sgp_work *work, struct CUctx_st *context, const CUgraphNodeParams *params);

/* capture_graph.c */
/* Makes the work a node behind what the stream did so far. Takes the work over, whatever comes of it. */
CUresult sgp_capture_work(struct CUstream_st *stream, struct sgp_work *work);

#endif
