/* Memory that graphs allocate and free: nodes, captured calls, what is counted, what is refused. */
#include "case.h"

enum { BYTES = 1 << 20 };

static CUDA_MEM_ALLOC_NODE_PARAMS allocating(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = bytes};
}

static CUgraph graph_new(void)
{
    CUgraph graph = NULL;

    MUST(cuGraphCreate, &graph, 0);
    return graph;
}

static CUgraphNode set_node(CUgraph graph, CUgraphNode after, CUdeviceptr memory, unsigned int value)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 1, .value = value, .width = BYTES, .height = 1};
    CUgraphNode node = NULL;
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    MUST(cuGraphAddMemsetNode, &node, graph, &after, 1, &set, context);
    return node;
}

static CUgraphNode copy_node(CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .WidthInBytes = 4096,
                          .Height = 1,
                          .Depth = 1};
    CUgraphNode node = NULL;
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    MUST(cuGraphAddMemcpyNode, &node, graph, &after, 1, &copy, context);
    return node;
}

static void say_used(const char *label)
{
    cuuint64_t used = 77;

    DO(cuDeviceGetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    say_number(text("at least what is allocated %s", label), used >= BYTES);
}

CASE(graph_memory_nodes)
{
    CUdeviceptr kept = device_bytes(4096, 1), freed = 0;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = allocating(BYTES), asked;
    CUgraph graph = graph_new();
    CUgraphNode first, node;
    CUgraphExec executable = NULL;
    CUgraphNodeType type = 77;

    DO(cuGraphAddMemAllocNode, &first, graph, NULL, 0, &alloc);
    say_number("address", alloc.dptr != 0);
    node = copy_node(graph, set_node(graph, first, alloc.dptr, 9), kept, alloc.dptr);
    DO(cuGraphAddMemFreeNode, &node, graph, &node, 1, alloc.dptr);
    DO(cuGraphNodeGetType, first, &type);
    say_number("type", type);
    DO(cuGraphNodeGetType, node, &type);
    say_number("type", type);
    DO(cuGraphMemAllocNodeGetParams, first, &asked);
    say_number("the same address", asked.dptr == alloc.dptr);
    say_number("bytes", (long long)asked.bytesize);
    DO(cuGraphMemFreeNodeGetParams, node, &freed);
    say_number("the same address", freed == alloc.dptr);
    DO(cuGraphInstantiate, &executable, graph, 0);
    for (int i = 0; i < 3; i++) {
        DO(cuGraphLaunch, executable, NULL);
    }
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("kept", kept, 4096);
    DO(cuGraphExecDestroy, executable);
    DO(cuGraphDestroy, graph);
    DO(cuDeviceGraphMemTrim, 0);
}

CASE(graph_memory_outlives_a_launch)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = allocating(BYTES);
    CUgraph graph = graph_new();
    CUgraphNode first;
    CUgraphExec executable = NULL;

    MUST(cuGraphAddMemAllocNode, &first, graph, NULL, 0, &alloc);
    set_node(graph, first, alloc.dptr, 5);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_used("after a launch");
    say_device_bytes("set", alloc.dptr, BYTES);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    DO(cuMemFreeAsync, alloc.dptr, NULL);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    DO(cuMemFree, alloc.dptr);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuGraphExecDestroy, executable);
    DO(cuGraphDestroy, graph);
    DO(cuMemFree, alloc.dptr);
    DO(cuCtxSynchronize);
}

CASE(graph_memory_freed_by_launches)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = allocating(BYTES);
    CUgraph graph = graph_new();
    CUgraphNode first;
    CUgraphExec executable = NULL;

    MUST(cuGraphAddMemAllocNode, &first, graph, NULL, 0, &alloc);
    set_node(graph, first, alloc.dptr, 6);
    DO(cuGraphInstantiate, &executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; i++) {
        DO(cuGraphLaunch, executable, NULL);
    }
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("set", alloc.dptr, BYTES);
    DO(cuMemFree, alloc.dptr);
}

CASE(graph_memory_captured)
{
    CUdeviceptr kept = device_bytes(4096, 1), memory = 0, pooled = 0;
    CUgraphExec executable = NULL;
    CUgraphNode nodes[8];
    CUgraph graph = NULL;
    CUstream stream;
    size_t nr = 8;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAllocAsync, &pooled, BYTES, stream);
    MUST(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuMemAllocAsync, &memory, BYTES, stream);
    DO(cuMemsetD8Async, memory, 3, BYTES, stream);
    DO(cuMemcpyDtoDAsync, kept, memory + 100, 4096, stream);
    DO(cuMemFreeAsync, memory, stream);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphGetNodes, graph, nodes, &nr);
    for (size_t i = 0; i < nr; i++) {
        CUgraphNodeType type = 77;

        MUST(cuGraphNodeGetType, nodes[i], &type);
        say_number(text("type of node %zu", i), type);
    }
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, stream);
    DO(cuGraphLaunch, executable, stream);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("kept", kept, 4096);
    DO(cuMemFreeAsync, pooled, stream);
    DO(cuStreamSynchronize, stream);
}

CASE(graph_memory_freed_by_another_graph)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = allocating(BYTES);
    CUgraph graph = graph_new(), other = graph_new();
    CUgraphNode node;
    CUgraphExec makes = NULL, frees = NULL;

    MUST(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &alloc);
    DO(cuGraphAddMemFreeNode, &node, other, NULL, 0, alloc.dptr);
    DO(cuGraphInstantiate, &makes, graph, 0);
    DO(cuGraphInstantiate, &frees, other, 0);
    for (int i = 0; i < 2; i++) {
        DO(cuGraphLaunch, makes, NULL);
        DO(cuGraphLaunch, frees, NULL);
    }
    DO(cuStreamSynchronize, NULL);
    ROW("what is free", cuGraphLaunch, frees, NULL);
    DO(cuGraphLaunch, makes, NULL);
    DO(cuMemFree, alloc.dptr);
    ROW("what is free again", cuGraphLaunch, frees, NULL);
    DO(cuStreamSynchronize, NULL);
}

CASE(graph_memory_errors)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = allocating(BYTES), wrong;
    CUgraph graph = graph_new(), clone = NULL;
    CUgraphNode node, freeing, empty;
    CUgraphExec executable = NULL, another = NULL;
    cuuint64_t value = 1;

    MUST(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &alloc);
    MUST(cuGraphAddEmptyNode, &empty, graph, NULL, 0);
    ROW("no parameters", cuGraphAddMemAllocNode, &node, graph, NULL, 0, NULL);
    wrong = allocating(0);
    ROW("no bytes", cuGraphAddMemAllocNode, &node, graph, NULL, 0, &wrong);
    wrong = allocating(BYTES);
    wrong.poolProps.location.id = 1000;
    ROW("no such device", cuGraphAddMemAllocNode, &node, graph, NULL, 0, &wrong);
    wrong = allocating(BYTES);
    wrong.accessDescCount = 1;
    ROW("no access", cuGraphAddMemAllocNode, &node, graph, NULL, 0, &wrong);
    ROW("no memory of a graph", cuGraphAddMemFreeNode, &freeing, graph, NULL, 0, device_bytes(100, 1));
    ROW("no memory", cuGraphAddMemFreeNode, &freeing, graph, NULL, 0, 0);
    DO(cuGraphAddMemFreeNode, &freeing, graph, &node, 1, alloc.dptr);
    ROW("what is freed already", cuGraphAddMemFreeNode, &freeing, graph, NULL, 0, alloc.dptr);
    ROW("another kind of node", cuGraphMemAllocNodeGetParams, empty, &wrong);
    ROW("another kind of node", cuGraphMemFreeNodeGetParams, node, &wrong.dptr);
    ROW("memory that is not allocated", cuMemFree, alloc.dptr);
    DO(cuGraphClone, &clone, graph);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphInstantiate, &another, graph, 0);
    DO(cuGraphExecDestroy, executable);
    ROW("no such device", cuDeviceGraphMemTrim, 1000);
    ROW("no value", cuDeviceGetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, NULL);
    ROW("a value", cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value);
    value = 0;
    ROW("what is no watermark", cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value);
    DO(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value);
}
