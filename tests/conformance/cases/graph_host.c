/* Host functions in graphs: as nodes, captured, changed, run again. */
#include <string.h>

#include "case.h"

enum { NR_CALLS = 64 };

static char called[NR_CALLS + 1];

/* Writes down its letter. */
static void note(void *letter)
{
    size_t nr = strlen(called);

    if (nr < NR_CALLS) {
        called[nr] = (char)(uintptr_t)letter;
    }
}

static void note_twice(void *letter)
{
    note(letter);
    note(letter);
}

static CUDA_HOST_NODE_PARAMS noting(char letter)
{
    return (CUDA_HOST_NODE_PARAMS){.fn = note, .userData = (void *)(uintptr_t)letter};
}

static CUgraph graph_new(void)
{
    CUgraph graph = NULL;

    MUST(cuGraphCreate, &graph, 0);
    memset(called, 0, sizeof(called));
    return graph;
}

static CUgraphNode node_new(CUgraph graph, char letter, const CUgraphNode *after)
{
    CUDA_HOST_NODE_PARAMS params = noting(letter);
    CUgraphNode node = NULL;

    MUST(cuGraphAddHostNode, &node, graph, after, after != NULL, &params);
    return node;
}

static void run(CUgraphExec executable)
{
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_text("called", called);
    memset(called, 0, sizeof(called));
}

static void run_graph(CUgraph graph)
{
    CUgraphExec executable = NULL;

    DO(cuGraphInstantiate, &executable, graph, 0);
    run(executable);
    DO(cuGraphExecDestroy, executable);
}

CASE(graph_host_nodes)
{
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;
    CUgraphNode first = node_new(graph, 'a', NULL), second = node_new(graph, 'b', &first);
    CUgraphNodeType type = 77;

    node_new(graph, 'c', &second);
    DO(cuGraphNodeGetType, second, &type);
    say_number("type", type);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    run(executable);
    DO(cuGraphDestroy, graph);
    run(executable);
    DO(cuGraphExecDestroy, executable);
}

CASE(graph_host_node_between_kernels)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 1, .value = 9, .width = 100, .height = 1};
    CUDA_HOST_NODE_PARAMS params = noting('x');
    CUgraph graph = graph_new();
    CUgraphNode nodes[3];
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    MUST(cuGraphAddMemsetNode, &nodes[0], graph, NULL, 0, &set, context);
    DO(cuGraphAddHostNode, &nodes[1], graph, &nodes[0], 1, &params);
    set.dst = memory + 50;
    set.value = 8;
    MUST(cuGraphAddMemsetNode, &nodes[2], graph, &nodes[1], 1, &set, context);
    run_graph(graph);
    say_device_bytes("set", memory, 4096);
}

CASE(graph_host_node_parameters)
{
    CUDA_HOST_NODE_PARAMS params = {0}, twice = {.fn = note_twice, .userData = (void *)(uintptr_t)'t'};
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;
    CUgraphNode node = node_new(graph, 'a', NULL);

    DO(cuGraphHostNodeGetParams, node, &params);
    say_number("function", params.fn == note);
    say_number("data", (long long)(uintptr_t)params.userData);
    DO(cuGraphInstantiate, &executable, graph, 0);
    DO(cuGraphExecHostNodeSetParams, executable, node, &twice);
    run(executable);
    DO(cuGraphHostNodeGetParams, node, &params);
    say_number("function of the graph", params.fn == note);
    params.userData = (void *)(uintptr_t)'n';
    DO(cuGraphHostNodeSetParams, node, &params);
    run(executable);
    DO(cuGraphHostNodeGetParams, node, &params);
    say_number("data", (long long)(uintptr_t)params.userData);
    run_graph(graph);
    for (char letter = 'd'; letter < 'h'; letter++) {
        CUDA_HOST_NODE_PARAMS changed = noting(letter);

        DO(cuGraphExecHostNodeSetParams, executable, node, &changed);
        DO(cuGraphLaunch, executable, NULL);
    }
    run(executable);
}

CASE(graph_host_nodes_by_the_general_calls)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST,
                                .host = {.fn = note, .userData = (void *)(uintptr_t)'g'}};
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;
    CUgraphNode node;

    DO(cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    DO(cuGraphInstantiate, &executable, graph, 0);
    run(executable);
    params.host.userData = (void *)(uintptr_t)'h';
    DO(cuGraphExecNodeSetParams, executable, node, &params);
    run(executable);
    DO(cuGraphNodeSetParams, node, &params);
    run_graph(graph);
}

CASE(graph_host_nodes_cloned_and_inside)
{
    CUDA_HOST_NODE_PARAMS params = {0};
    CUgraph graph = graph_new(), child = graph_new(), clone = NULL, inner = NULL, inner_clone = NULL;
    CUgraphNode node, inside;
    size_t nr = 1;

    node_new(child, 'i', NULL);
    MUST(cuGraphAddChildGraphNode, &node, graph, NULL, 0, child);
    node_new(graph, 'o', &node);
    DO(cuGraphDestroy, child);
    run_graph(graph);
    DO(cuGraphClone, &clone, graph);
    DO(cuGraphChildGraphNodeGetGraph, node, &inner);
    MUST(cuGraphGetNodes, inner, &inside, &nr);
    DO(cuGraphHostNodeGetParams, inside, &params);
    say_number("data", (long long)(uintptr_t)params.userData);
    params.userData = (void *)(uintptr_t)'j';
    DO(cuGraphHostNodeSetParams, inside, &params);
    run_graph(graph);
    DO(cuGraphClone, &inner_clone, inner);
    DO(cuGraphDestroy, graph);
    run_graph(clone);
    run_graph(inner_clone);
}

CASE(graph_host_functions_captured)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    CUDA_HOST_NODE_PARAMS params = {0};
    CUgraph graph = NULL, again = NULL;
    CUgraphExec executable = NULL;
    CUgraphExecUpdateResultInfo info = {0};
    CUgraphNode nodes[3] = {0};
    CUstream stream;
    size_t nr = 3;

    memset(called, 0, sizeof(called));
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuLaunchHostFunc, stream, note, (void *)(uintptr_t)'c');
    DO(cuMemsetD8Async, memory, 3, 100, stream);
    DO(cuLaunchHostFunc, stream, note, (void *)(uintptr_t)'d');
    DO(cuStreamEndCapture, stream, &graph);
    say_text("not called", called);
    DO(cuGraphGetNodes, graph, nodes, &nr);
    say_number("nodes", (long long)nr);
    DO(cuGraphHostNodeGetParams, nodes[2], &params);
    say_number("function", params.fn == note);
    say_number("data", (long long)(uintptr_t)params.userData);
    DO(cuGraphInstantiate, &executable, graph, 0);
    run(executable);
    MUST(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    DO(cuLaunchHostFunc, stream, note, (void *)(uintptr_t)'e');
    DO(cuMemsetD8Async, memory, 4, 100, stream);
    DO(cuLaunchHostFunc, stream, note, (void *)(uintptr_t)'f');
    DO(cuStreamEndCapture, stream, &again);
    DO(cuGraphExecUpdate, executable, again, &info);
    DO(cuGraphDestroy, graph);
    DO(cuGraphDestroy, again);
    run(executable);
    say_device_bytes("set", memory, 200);
}

CASE(graph_host_function_errors)
{
    CUDA_HOST_NODE_PARAMS params = noting('a'), none = {0};
    CUgraph graph = graph_new();
    CUgraphExec executable = NULL;
    CUgraphNode node = node_new(graph, 'a', NULL), empty;

    MUST(cuGraphAddEmptyNode, &empty, graph, NULL, 0);
    MUST(cuGraphInstantiate, &executable, graph, 0);
    ROW("no parameters", cuGraphAddHostNode, &node, graph, NULL, 0, NULL);
    ROW("no function", cuGraphAddHostNode, &node, graph, NULL, 0, &none);
    ROW("no graph", cuGraphAddHostNode, &node, NULL, NULL, 0, &params);
    ROW("no result", cuGraphAddHostNode, NULL, graph, NULL, 0, &params);
    ROW("no node", cuGraphHostNodeGetParams, NULL, &params);
    ROW("no parameters", cuGraphHostNodeGetParams, node, NULL);
    ROW("another kind of node", cuGraphHostNodeGetParams, empty, &params);
    ROW("another kind of node", cuGraphHostNodeSetParams, empty, &params);
    ROW("no parameters", cuGraphHostNodeSetParams, node, NULL);
    ROW("no executable", cuGraphExecHostNodeSetParams, NULL, node, &params);
    ROW("another kind of node", cuGraphExecHostNodeSetParams, executable, empty, &params);
}
