/* Graphs: made by hand and by capture, instantiated, launched, changed. */
#include "case.h"

enum { NR = 1024 };

struct filling {
    CUdeviceptr out;
    unsigned int value, nr_words;
    void *parameters[3];
    CUDA_KERNEL_NODE_PARAMS node;
};

static void filling_make(struct filling *filling, CUdeviceptr out, unsigned int value)
{
    *filling = (struct filling){.out = out, .value = value, .nr_words = NR};
    filling->parameters[0] = &filling->out;
    filling->parameters[1] = &filling->value;
    filling->parameters[2] = &filling->nr_words;
    filling->node.func = function_of("fill");
    filling->node.gridDimX = NR / 128;
    filling->node.blockDimX = 128;
    filling->node.gridDimY = filling->node.gridDimZ = filling->node.blockDimY = filling->node.blockDimZ = 1;
    filling->node.kernelParams = filling->parameters;
}

static CUgraph graph_new(void)
{
    CUgraph graph = NULL;

    MUST(cuGraphCreate, &graph, 0);
    return graph;
}

static CUgraph capture(CUstream stream, CUdeviceptr memory)
{
    CUgraph graph = NULL;

    MUST(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    must("fill", fill(memory, 5, NR, stream));
    MUST(cuMemsetD8Async, memory, 7, 100, stream);
    MUST(cuStreamEndCapture, stream, &graph);
    return graph;
}

static void say_nodes(CUgraph graph)
{
    CUgraphNode nodes[32];
    size_t nr_nodes = 0, nr_edges = 0, room = 32;

    DO(cuGraphGetNodes, graph, NULL, &nr_nodes);
    say_number("nodes", (long long)nr_nodes);
    MUST(cuGraphGetNodes, graph, nodes, &room);
    for (size_t i = 0; i < nr_nodes && i < 32; i++) {
        CUgraphNodeType type = 77;

        MUST(cuGraphNodeGetType, nodes[i], &type);
        say_number(text("type of node %zu", i), type);
    }
    DO(cuGraphGetEdges, graph, NULL, NULL, NULL, &nr_edges);
    say_number("edges", (long long)nr_edges);
}

CASE(graph_create_and_destroy)
{
    CUgraph graph = NULL;
    size_t nr_nodes = 77;

    DO(cuGraphCreate, &graph, 0);
    if (!graph) {
        return;
    }
    DO(cuGraphGetNodes, graph, NULL, &nr_nodes);
    say_number("nodes", (long long)nr_nodes);
    DO(cuGraphDestroy, graph);
}

CASE(graph_of_nothing)
{
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;

    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    DO(cuGraphExecDestroy, executable);
    DO(cuGraphDestroy, graph);
}

CASE(graph_kernel_nodes)
{
    CUdeviceptr memory = device_bytes(NR * 4, 0);
    CUgraph graph = graph_new();
    CUgraphNode first, second;
    CUgraphExec executable = NULL;
    struct filling one, two;

    filling_make(&one, memory, 100);
    filling_make(&two, memory, 200);
    DO(cuGraphAddKernelNode, &first, graph, NULL, 0, &one.node);
    DO(cuGraphAddKernelNode, &second, graph, &first, 1, &two.node);
    say_nodes(graph);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("filled", memory, NR * 4);
    DO(cuMemsetD8, memory, 0, NR * 4);
    DO(cuGraphLaunch, executable, NULL);
    say_device_bytes("filled again", memory, NR * 4);
    DO(cuGraphExecDestroy, executable);
    DO(cuGraphDestroy, graph);
}

CASE(graph_memset_and_copy_nodes)
{
    CUdeviceptr from = device_bytes(4096, 1), to = device_bytes(4096, 2);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = from, .elementSize = 4, .value = 0x1234, .width = 100, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .WidthInBytes = 2000,
                          .Height = 1,
                          .Depth = 1};
    CUgraph graph = graph_new();
    CUgraphNode first, second;
    CUgraphExec executable = NULL;
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    DO(cuGraphAddMemsetNode, &first, graph, NULL, 0, &set, context);
    DO(cuGraphAddMemcpyNode, &second, graph, &first, 1, &copy, context);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("copied", to, 4096);
    DO(cuGraphExecDestroy, executable);
    DO(cuGraphDestroy, graph);
}

CASE(graph_empty_and_child_nodes)
{
    CUdeviceptr memory = device_bytes(NR * 4, 0);
    CUgraph graph = graph_new(), child = graph_new();
    CUgraphNode inner, outer, empty;
    CUgraphExec executable = NULL;
    struct filling one;

    filling_make(&one, memory, 300);
    MUST(cuGraphAddKernelNode, &inner, child, NULL, 0, &one.node);
    DO(cuGraphAddEmptyNode, &empty, graph, NULL, 0);
    DO(cuGraphAddChildGraphNode, &outer, graph, &empty, 1, child);
    say_nodes(graph);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("filled", memory, NR * 4);
}

CASE(graph_event_nodes)
{
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;
    CUgraphNode first, second;
    CUevent event;

    MUST(cuEventCreate, &event, 0);
    DO(cuGraphAddEventRecordNode, &first, graph, NULL, 0, event);
    DO(cuGraphAddEventWaitNode, &second, graph, &first, 1, event);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuEventSynchronize, event);
    DO(cuStreamSynchronize, NULL);
}

CASE(graph_dependencies)
{
    CUgraph graph = graph_new();
    CUgraphNode nodes[4];
    size_t count = 0;

    for (int i = 0; i < 4; i++) {
        MUST(cuGraphAddEmptyNode, &nodes[i], graph, NULL, 0);
    }
    CUgraphNode from[] = {nodes[0], nodes[0], nodes[1]}, to[] = {nodes[1], nodes[2], nodes[3]};
    DO(cuGraphAddDependencies, graph, from, to, NULL, 3);
    say_nodes(graph);
    DO(cuGraphGetRootNodes, graph, NULL, &count);
    say_number("roots", (long long)count);
    DO(cuGraphNodeGetDependencies, nodes[3], NULL, NULL, &count);
    say_number("dependencies", (long long)count);
    DO(cuGraphNodeGetDependentNodes, nodes[0], NULL, NULL, &count);
    say_number("dependents", (long long)count);
    DO(cuGraphRemoveDependencies, graph, from, to, NULL, 1);
    DO(cuGraphGetRootNodes, graph, NULL, &count);
    say_number("roots", (long long)count);
    DO(cuGraphDestroyNode, nodes[0]);
    say_nodes(graph);
    CUgraphNode last[] = {nodes[3]}, first[] = {nodes[1]};
    DO(cuGraphAddDependencies, graph, last, first, NULL, 1);
    DO(cuGraphInstantiate, &(CUgraphExec){NULL}, graph, 0);
}

CASE(graph_captured)
{
    CUdeviceptr memory = device_bytes(NR * 4, 0);
    CUgraphExec executable = NULL;
    CUstream stream;
    CUgraph graph;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    graph = capture(stream, memory);
    say_device_bytes("not yet", memory, NR * 4);
    say_nodes(graph);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, stream);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("filled", memory, NR * 4);
}

CASE(graph_capture_states)
{
    CUstreamCaptureStatus status = 77;
    CUgraph graph = NULL;
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("before", status);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("during", status);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("after", status);
    DO(cuStreamEndCapture, stream, &graph);
}

CASE(graph_capture_broken_by_waiting)
{
    CUstreamCaptureStatus status = 77;
    CUgraph graph = NULL;
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) {
        return;
    }
    DO(cuStreamSynchronize, stream);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("status", status);
    DO(cuStreamEndCapture, stream, &graph);
    say_number("graph", graph != NULL);
    DO(cuStreamSynchronize, stream);
}

CASE(graph_capture_across_streams)
{
    CUdeviceptr memory = device_bytes(2 * NR * 4, 0);
    CUgraphExec executable = NULL;
    CUstream first, second;
    CUevent fork, join;
    CUgraph graph = NULL;

    MUST(cuStreamCreate, &first, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
    if (DO(cuStreamBeginCapture, first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) {
        return;
    }
    DO(cuEventRecord, fork, first);
    DO(cuStreamWaitEvent, second, fork, 0);
    say("fill", fill(memory, 1, NR, first));
    say("fill", fill(memory + NR * 4, 2, NR, second));
    DO(cuEventRecord, join, second);
    DO(cuStreamWaitEvent, first, join, 0);
    DO(cuStreamEndCapture, first, &graph);
    say_nodes(graph);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, first);
    DO(cuStreamSynchronize, first);
    say_device_bytes("filled", memory, 2 * NR * 4);
}

CASE(graph_clone)
{
    CUgraph graph = graph_new(), clone = NULL;
    CUgraphNode node, found = NULL;

    MUST(cuGraphAddEmptyNode, &node, graph, NULL, 0);
    DO(cuGraphClone, &clone, graph);
    DO(cuGraphNodeFindInClone, &found, node, clone);
    say_number("another node", found != node && found);
    DO(cuGraphDestroy, graph);
    say_nodes(clone);
}

CASE(graph_parameters_changed)
{
    CUdeviceptr memory = device_bytes(NR * 4, 0);
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;
    CUgraphNode node;
    struct filling one, two, three;

    filling_make(&one, memory, 100);
    filling_make(&two, memory, 200);
    filling_make(&three, memory, 300);
    MUST(cuGraphAddKernelNode, &node, graph, NULL, 0, &one.node);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphExecKernelNodeSetParams, executable, node, &two.node);
    DO(cuGraphLaunch, executable, NULL);
    say_device_bytes("changed in the executable", memory, NR * 4);
    DO(cuGraphKernelNodeSetParams, node, &three.node);
    DO(cuGraphLaunch, executable, NULL);
    say_device_bytes("changed in the graph only", memory, NR * 4);
    CUgraphExecUpdateResultInfo info = {0};
    DO(cuGraphExecUpdate, executable, graph, &info);
    say_number("update", info.result);
    DO(cuGraphLaunch, executable, NULL);
    say_device_bytes("updated", memory, NR * 4);
}

CASE(graph_upload_and_flags)
{
    CUgraphExec executable = NULL;
    cuuint64_t flags = 77;

    DO(cuGraphInstantiate, &executable, graph_new(), CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    DO(cuGraphExecGetFlags, executable, &flags);
    say_number("flags", (long long)flags);
    DO(cuGraphUpload, executable, NULL);
    DO(cuCtxSynchronize);
}

CASE(graph_errors)
{
    CUgraphExec executable = NULL;
    CUgraph graph = NULL;
    CUgraphNode node;
    size_t count = 0;

    ROW("no result", cuGraphCreate, NULL, 0);
    ROW("flags", cuGraphCreate, &graph, 1);
    ROW("no graph", cuGraphDestroy, NULL);
    ROW("no graph", cuGraphInstantiate, &executable, NULL, 0);
    ROW("no executable", cuGraphLaunch, NULL, NULL);
    ROW("no executable", cuGraphExecDestroy, NULL);
    ROW("no graph", cuGraphAddEmptyNode, &node, NULL, NULL, 0);
    ROW("no graph", cuGraphGetNodes, NULL, NULL, &count);
    ROW("no graph", cuGraphClone, &graph, NULL);
}

/* A little memory ends where the program was told that it does. */
CASE(graph_nodes_beyond_their_memory)
{
    CUdeviceptr memory = device_bytes(64, 1), other = device_bytes(64, 2);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = other,
                          .dstPitch = 32,
                          .WidthInBytes = 16,
                          .Height = 2,
                          .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 4, .value = 7, .width = 16, .height = 1};
    CUgraph graph = NULL;
    CUgraphNode copying, setting;
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    MUST(cuGraphCreate, &graph, 0);
    DO(cuGraphAddMemsetNode, &setting, graph, NULL, 0, &set, context);
    DO(cuGraphAddMemcpyNode, &copying, graph, NULL, 0, &copy, context);
    set.width = 17;
    ROW("a word more", cuGraphMemsetNodeSetParams, setting, &set);
    copy.Height = 3;
    ROW("a row more", cuGraphMemcpyNodeSetParams, copying, &copy);
    copy.Height = 2;
    copy.dstXInBytes = 17;
    ROW("a byte more", cuGraphMemcpyNodeSetParams, copying, &copy);
    copy.dstXInBytes = 0;
    copy.srcZ = 2;
    copy.srcHeight = 2;
    ROW("a plane more", cuGraphMemcpyNodeSetParams, copying, &copy);
    copy.srcZ = 0;
    copy.srcMemoryType = (CUmemorytype)9;
    ROW("no type of memory", cuGraphMemcpyNodeSetParams, copying, &copy);
}

/* What a node copies or sets may be gone when the graph is launched. */
static void launch_after_free(bool copies)
{
    CUdeviceptr memory = device_bytes(8 << 20, 1), freed = device_bytes(8 << 20, 2);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = freed,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS set = {.dst = freed, .elementSize = 1, .value = 7, .width = 64, .height = 1};
    CUgraph graph = NULL;
    CUgraphNode node;
    CUgraphExec exec = NULL;
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    MUST(cuGraphCreate, &graph, 0);
    if (copies) {
        MUST(cuGraphAddMemcpyNode, &node, graph, NULL, 0, &copy, context);
    } else {
        MUST(cuGraphAddMemsetNode, &node, graph, NULL, 0, &set, context);
    }
    DO(cuGraphInstantiate, &exec, graph, 0);
    DO(cuGraphLaunch, exec, NULL);
    DO(cuCtxSynchronize);
    DO(cuMemFree, freed);
    DO(cuGraphLaunch, exec, NULL);
    DO(cuCtxSynchronize);
    DO(cuMemsetD8, memory, 0, 1);
    DO(cuCtxSynchronize);
}

ALONE(graph_copies_what_is_gone)
{
    launch_after_free(true);
}

ALONE(graph_sets_what_is_gone)
{
    launch_after_free(false);
}
