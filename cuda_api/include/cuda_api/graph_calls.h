/* What cuda_api/common/graph_calls, which both of our libcuda.so.1 libraries have, asks of a library, and gives it. */
#ifndef CUDA_API_GRAPH_CALLS_H
#define CUDA_API_GRAPH_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* What these calls ask of the library that they are part of. */
struct fgv_graph_ops {
    /* The parameters of a node; CUDA_ERROR_INVALID_VALUE when it is of another kind. `params` is zeroed by the caller.
     */
    CUresult (*node_get)(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams *params);
};

/* Lends these calls their ops, which stay valid for the life of the process. Once, in a constructor of the library. */
void fgv_graph_set_ops(const struct fgv_graph_ops *ops);

/* References of a graph, or of what was instantiated of it, to user objects; owners by their handles. */
void fgv_user_objects_copy(uint64_t from, uint64_t to);
bool fgv_user_objects_has(uint64_t owner);
/* Whether the owner refers to an object with this destructor and value. */
bool fgv_user_object_is_any(uint64_t owner, CUhostFn destroy, bool (*is_one)(uint64_t value));
bool fgv_user_object_is_kept(uint64_t owner, CUhostFn destroy, const void *value);
/* Gives them up, and calls destructors of the program. Without locks. */
void fgv_user_objects_drop(uint64_t owner);

#endif
