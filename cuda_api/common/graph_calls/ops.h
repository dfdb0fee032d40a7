/* What the library lent, for the files of this folder; libraries include cuda_api/graph_calls.h only. */
#ifndef CUDA_API_GRAPH_CALLS_OPS_H
#define CUDA_API_GRAPH_CALLS_OPS_H

#include "cuda_api/graph_calls.h"

const struct fgv_graph_ops *fgv_graph_ops_get(void);

#endif
