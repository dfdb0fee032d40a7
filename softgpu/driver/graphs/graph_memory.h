/* Memory that graphs allocate: see graph_memory.c. All with the driver's lock. */
#ifndef SOFTGPU_GRAPH_MEMORY_H
#define SOFTGPU_GRAPH_MEMORY_H

#include "base/driver.h"

struct sgp_graph_memory;

static inline bool sgp_is_of_memory(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

/* With one reference; params gets the address. */
CUresult sgp_graph_memory_new(struct CUctx_st *context, CUDA_MEM_ALLOC_NODE_PARAMS *params,
                              struct sgp_graph_memory **made);
/* That begins at the address; NULL: none does. */
struct sgp_graph_memory *sgp_graph_memory_find(CUdeviceptr address);
void sgp_graph_memory_keep(struct sgp_graph_memory *memory);
void sgp_graph_memory_release(struct sgp_graph_memory *memory);
const CUDA_MEM_ALLOC_NODE_PARAMS *sgp_graph_memory_params(const struct sgp_graph_memory *memory);
/* Between a launch that allocates it and its free. */
bool sgp_graph_memory_is_live(const struct sgp_graph_memory *memory);
/* An allocating node was instantiated, and is no more. */
CUresult sgp_graph_memory_instantiate(struct sgp_graph_memory *memory);
void sgp_graph_memory_forget_exec(struct sgp_graph_memory *memory);
/* A launch has come to the node that allocates it. */
void sgp_graph_memory_launched(struct sgp_graph_memory *memory);
/* Freed in the order of the stream, and at once when nothing uses it any more. */
CUresult sgp_graph_memory_free(struct sgp_graph_memory *memory, struct CUstream_st *stream);

#endif
