/* What the record graph_list may ask for. */
#ifndef CUDA_API_GRAPH_LISTS_H
#define CUDA_API_GRAPH_LISTS_H

enum fgv_graph_list {
    FGV_LIST_NODES = 0,        /* of a graph */
    FGV_LIST_ROOTS = 1,        /* of a graph */
    FGV_LIST_EDGES = 2,        /* of a graph: origins, ends, data */
    FGV_LIST_DEPENDENCIES = 3, /* of a node: others, data */
    FGV_LIST_DEPENDENTS = 4,   /* of a node: others, data */
};

/* Origin, end and data of an edge, as they lie in a chunk. */
#define FGV_LIST_ENTRY_BYTES 24u

/* Bodies of a conditional node that the reply of graph_add_node has room for. */
#define FGV_MAX_BODIES 32u

#endif
