/*
 * cuGraphDebugDotPrint: a graph in the language of graphviz. What NVIDIA's driver writes is documented nowhere; this is
 * the same in kind: a node for each node, its kind as label, and an edge for each dependency.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_api/prototypes.h"
#include "ops.h"

static const char *const names[] = {"KERNEL",    "MEMCPY",     "MEMSET",       "HOST",         "GRAPH",
                                    "EMPTY",     "WAIT_EVENT", "EVENT_RECORD", "SEMAS_SIGNAL", "SEMAS_WAIT",
                                    "MEM_ALLOC", "MEM_FREE",   "BATCH_MEM_OP", "CONDITIONAL"};

static void describe(FILE *file, CUgraphNode node, CUgraphNodeType type, unsigned int flags)
{
    CUgraphNodeParams params = {0};
    const char *function = NULL;
    const unsigned int is_verbose = flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;

    if (!(is_verbose |
          (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS | CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS |
                    CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))) ||
        fgv_graph_ops_get()->node_get(node, type, &params)) {
        return;
    }
    if (type == CU_GRAPH_NODE_TYPE_KERNEL && (is_verbose || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))) {
        if (params.kernel.func) {
            cuFuncGetName(&function, params.kernel.func);
        } else {
            cuKernelGetName(&function, params.kernel.kern);
        }
        fprintf(file, "\\n%s\\n%u x %u x %u blocks of %u x %u x %u", function ? function : "", params.kernel.gridDimX,
                params.kernel.gridDimY, params.kernel.gridDimZ, params.kernel.blockDimX, params.kernel.blockDimY,
                params.kernel.blockDimZ);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY && (is_verbose || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))) {
        fprintf(file, "\\n%zu x %zu x %zu", params.memcpy.copyParams.WidthInBytes, params.memcpy.copyParams.Height,
                params.memcpy.copyParams.Depth);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMSET && (is_verbose || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))) {
        fprintf(file, "\\n%#x, %zu x %zu of %u bytes", params.memset.value, params.memset.width, params.memset.height,
                params.memset.elementSize);
    }
}

static CUresult write_nodes(FILE *file, CUgraph graph, unsigned int flags)
{
    size_t nr = 0;
    CUgraphNode *nodes;
    CUresult result = cuGraphGetNodes(graph, NULL, &nr);

    if (result || !nr) {
        return result;
    }
    nodes = calloc(nr, sizeof(*nodes));
    result = nodes ? cuGraphGetNodes(graph, nodes, &nr) : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < nr && !result; i++) {
        CUgraphNodeType type;

        result = cuGraphNodeGetType(nodes[i], &type);
        if (result) {
            break;
        }
        fprintf(file, "\"node_%p\" [shape=\"record\" label=\"%s", (void *)nodes[i],
                (size_t)type < sizeof(names) / sizeof(*names) ? names[type] : "?");
        describe(file, nodes[i], type, flags);
        fprintf(file, "\"];\n");
    }
    free(nodes);
    return result;
}

static CUresult write_edges(FILE *file, CUgraph graph)
{
    size_t nr = 0;
    CUgraphNode *from, *to;
    CUgraphEdgeData *data;
    CUresult result = cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &nr);

    if (result || !nr) {
        return result;
    }
    from = calloc(nr, sizeof(*from));
    to = calloc(nr, sizeof(*to));
    data = calloc(nr, sizeof(*data));
    result = from && to && data ? cuGraphGetEdges_v2(graph, from, to, data, &nr) : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < nr && !result; i++) {
        fprintf(file, "\"node_%p\" -> \"node_%p\";\n", (void *)from[i], (void *)to[i]);
    }
    free(from);
    free(to);
    free(data);
    return result;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    FILE *file;
    CUresult result;

    if (!hGraph || !path) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    file = fopen(path, "w");
    if (!file) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    fprintf(file, "digraph dot {\n");
    result = write_nodes(file, hGraph, flags);
    if (!result) {
        result = write_edges(file, hGraph);
    }
    fprintf(file, "}\n");
    return fclose(file) && !result ? CUDA_ERROR_OPERATING_SYSTEM : result;
}
