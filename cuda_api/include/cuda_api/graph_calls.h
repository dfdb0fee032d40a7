/* What a libcuda.so.1 gives the calls about nodes that cuda_api/graph_calls makes for it. */
#ifndef CUDA_API_GRAPH_CALLS_H
#define CUDA_API_GRAPH_CALLS_H

#include "cuda_api/types.h"

/* The parameters of a node; CUDA_ERROR_INVALID_VALUE when it is of another kind. `params` is zeroed by the caller. */
CUresult fgv_graph_node_get(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams *params);

#endif
