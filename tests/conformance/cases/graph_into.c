/* Capture into a graph that exists. */
#include "case.h"

enum { NR = 256 };

static CUgraphNode set_node(CUgraph graph, CUdeviceptr to, unsigned int value)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = to, .elementSize = 4, .value = value, .width = NR, .height = 1};
    CUcontext context;
    CUgraphNode node;

    MUST(cuCtxGetCurrent, &context);
    MUST(cuGraphAddMemsetNode, &node, graph, NULL, 0, &set, context);
    return node;
}

static void add_kernel(CUdeviceptr words, unsigned int value, CUstream stream)
{
    unsigned int nr = NR;
    void *parameters[] = {&words, &value, &nr};

    say("launch", launch("fill", NR / 128, 128, stream, parameters));
}

static void say_shape(CUgraph graph)
{
    size_t nr_nodes = 0, nr_roots = 0, nr_edges = 0;

    MUST(cuGraphGetNodes, graph, NULL, &nr_nodes);
    MUST(cuGraphGetRootNodes, graph, NULL, &nr_roots);
    MUST(cuGraphGetEdges, graph, NULL, NULL, NULL, &nr_edges);
    say_text("nodes, roots, edges", text("%zu %zu %zu", nr_nodes, nr_roots, nr_edges));
}

static void run(CUgraph graph, CUdeviceptr words, size_t bytes)
{
    CUgraphExec executable;

    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("words", words, bytes);
    DO(cuGraphExecDestroy, executable);
}

CASE(capture_into_a_graph)
{
    CUdeviceptr words = device_bytes(3 * NR * 4, 0);
    CUgraph graph, told = NULL;
    CUgraphNode node;
    CUstream stream;
    CUstreamCaptureStatus status;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    node = set_node(graph, words, 7);
    DO(cuStreamBeginCaptureToGraph, stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
    add_kernel(words, 100, stream);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("status", status);
    DO(cuStreamEndCapture, stream, &told);
    say_number("the same graph", told == graph);
    say_shape(graph);
    run(graph, words, 3 * NR * 4);

    DO(cuStreamBeginCaptureToGraph, stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
    add_kernel(words + NR * 4, 200, stream);
    add_kernel(words + 2 * NR * 4, 300, stream);
    DO(cuStreamEndCapture, stream, &told);
    say_number("the same graph", told == graph);
    say_shape(graph);
    run(graph, words, 3 * NR * 4);
    DO(cuGraphDestroy, graph);
}

CASE(capture_into_a_graph_that_nobody_asks_for)
{
    CUdeviceptr words = device_bytes(NR * 4, 0);
    CUgraph graph;
    CUstream stream;
    CUstreamCaptureStatus status;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuStreamBeginCaptureToGraph, stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    add_kernel(words, 11, stream);
    DO(cuStreamEndCapture, stream, NULL);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("status", status);
    say_shape(graph);
    run(graph, words, NR * 4);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    add_kernel(words, 12, stream);
    ROW("no graph asked for", cuStreamEndCapture, stream, NULL);
    DO(cuStreamIsCapturing, stream, &status);
    say_number("status", status);
    DO(cuStreamEndCapture, stream, &graph);
}

CASE(capture_into_a_graph_that_cannot_be)
{
    CUdeviceptr words = device_bytes(NR * 4, 0);
    CUgraph graph, other;
    CUgraphNode node, others;
    CUstream stream;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuGraphCreate, &other, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    node = set_node(graph, words, 7);
    others = set_node(other, words, 8);
    ROW("no graph", cuStreamBeginCaptureToGraph, stream, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ROW("no nodes", cuStreamBeginCaptureToGraph, stream, graph, NULL, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ROW("a mode that is none", cuStreamBeginCaptureToGraph, stream, graph, &node, NULL, 1, 7);
    ROW("a default stream", cuStreamBeginCaptureToGraph, NULL, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ROW("another graph's node", cuStreamBeginCaptureToGraph, stream, graph, &others, NULL, 1,
        CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuStreamBeginCaptureToGraph, stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ROW("a capture", cuStreamBeginCaptureToGraph, stream, other, &others, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuStreamEndCapture, stream, &graph);
    say_shape(graph);
}

CASE(capture_into_a_graph_from_two_streams)
{
    CUdeviceptr words = device_bytes(2 * NR * 4, 0);
    CUgraph graph;
    CUgraphNode node;
    CUstream stream, aside;
    CUevent forked, joined;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &aside, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &forked, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &joined, CU_EVENT_DISABLE_TIMING);
    node = set_node(graph, words, 7);
    DO(cuStreamBeginCaptureToGraph, stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuEventRecord, forked, stream);
    DO(cuStreamWaitEvent, aside, forked, 0);
    add_kernel(words, 31, stream);
    add_kernel(words + NR * 4, 32, aside);
    DO(cuEventRecord, joined, aside);
    DO(cuStreamWaitEvent, stream, joined, 0);
    DO(cuStreamEndCapture, stream, &graph);
    say_shape(graph);
    run(graph, words, 2 * NR * 4);
}
