/* Conditional nodes: kernels decide what of a graph runs. */
#include "case.h"

enum { NR = 64 };

static CUcontext current(void)
{
    CUcontext context;
    MUST(cuCtxGetCurrent, &context);
    return context;
}

static CUgraphConditionalHandle handle_of(CUgraph graph, unsigned int value, unsigned int flags)
{
    CUgraphConditionalHandle handle = 0;
    MUST(cuGraphConditionalHandleCreate, &handle, graph, current(), value, flags);
    return handle;
}

static CUgraphNodeParams condition(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned int size)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = current();
    return params;
}

/* A kernel of a handle and a word: count_down, choose. */
static CUgraphNode decide(CUgraph graph, const char *kernel, const CUgraphNode *after, CUgraphConditionalHandle handle,
                          CUdeviceptr word)
{
    void *parameters[] = {&handle, &word};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function_of(kernel),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    CUgraphNode node;
    MUST(cuGraphAddKernelNode, &node, graph, after, after ? 1 : 0, &params);
    return node;
}

static CUgraphNode count(CUgraph graph, CUdeviceptr words)
{
    unsigned int nr = NR;
    void *parameters[] = {&words, &nr};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function_of("add_one"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = NR,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    CUgraphNode node;
    MUST(cuGraphAddKernelNode, &node, graph, NULL, 0, &params);
    return node;
}

static CUdeviceptr words_of(unsigned int value)
{
    CUdeviceptr words;
    MUST(cuMemAlloc, &words, NR * 4);
    MUST(cuMemsetD32, words, value, NR);
    return words;
}

static void say_word(const char *label, CUdeviceptr word)
{
    unsigned int value = 0;
    MUST(cuMemcpyDtoH, &value, word, 4);
    say_number(label, value);
}

static CUgraphExec start(CUgraph graph)
{
    CUgraphExec executable = NULL;
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    return executable;
}

static void run(CUgraphExec executable)
{
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
}

CASE(graph_while)
{
    CUdeviceptr left = words_of(5), counted = words_of(0);
    CUgraph graph, body;
    CUgraphNode node;
    CUgraphExec executable;
    size_t nr = 0;
    CUgraphNodeType type;

    MUST(cuGraphCreate, &graph, 0);
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNodeParams params = condition(handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    DO(cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    body = params.conditional.phGraph_out[0];
    DO(cuGraphNodeGetType, node, &type);
    say_number("type", type);
    decide(body, "count_down", NULL, handle, left);
    count(body, counted);
    MUST(cuGraphGetNodes, body, NULL, &nr);
    say_number("nodes of the body", (long long)nr);
    executable = start(graph);
    run(executable);
    say_word("left", left);
    say_word("counted", counted);
    MUST(cuMemsetD32, left, 3, 1);
    run(executable);
    say_word("counted again", counted);
    ROW("a graph that is a node's", cuGraphDestroy, body);
    DO(cuGraphDestroy, graph);
    MUST(cuMemsetD32, left, 2, 1);
    run(executable);
    say_word("counted without the graph", counted);
    DO(cuGraphExecDestroy, executable);
}

CASE(graph_if_and_else)
{
    CUdeviceptr value = words_of(1), yes = words_of(0), no = words_of(100), once = words_of(200);
    CUgraph graph;
    CUgraphNode node, first;
    CUgraphExec executable;

    MUST(cuGraphCreate, &graph, 0);
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0), other = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    first = decide(graph, "choose", NULL, handle, value);
    CUgraphNodeParams params = condition(handle, CU_GRAPH_COND_TYPE_IF, 2);
    DO(cuGraphAddNode, &node, graph, &first, NULL, 1, &params);
    count(params.conditional.phGraph_out[0], yes);
    count(params.conditional.phGraph_out[1], no);
    params = condition(other, CU_GRAPH_COND_TYPE_IF, 1);
    DO(cuGraphAddNode, &node, graph, &node, NULL, 1, &params);
    count(params.conditional.phGraph_out[0], once);
    executable = start(graph);
    for (unsigned int i = 0; i < 4; i++) {
        MUST(cuMemsetD32, value, i & 1 ? 0 : 7, 1);
        run(executable);
        say_word("yes", yes);
        say_word("no", no);
        say_word("by default", once);
    }
}

CASE(graph_switch)
{
    CUdeviceptr value = words_of(0), counted[3];
    CUgraph graph;
    CUgraphNode node, first;
    CUgraphExec executable;

    MUST(cuGraphCreate, &graph, 0);
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    first = decide(graph, "choose", NULL, handle, value);
    CUgraphNodeParams params = condition(handle, CU_GRAPH_COND_TYPE_SWITCH, 3);
    DO(cuGraphAddNode, &node, graph, &first, NULL, 1, &params);
    for (unsigned int i = 0; i < 3; i++) {
        counted[i] = words_of(10 * i);
        count(params.conditional.phGraph_out[i], counted[i]);
    }
    executable = start(graph);
    for (unsigned int i = 0; i < 5; i++) {
        MUST(cuMemsetD32, value, i, 1);
        run(executable);
        for (unsigned int k = 0; k < 3; k++) {
            say_word("counted", counted[k]);
        }
    }
}

CASE(graph_while_in_an_if)
{
    CUdeviceptr value = words_of(0), left = words_of(4), counted = words_of(0);
    CUgraph graph, outer, inner;
    CUgraphNode node, first;
    CUgraphExec executable;

    MUST(cuGraphCreate, &graph, 0);
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0), loop = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    first = decide(graph, "choose", NULL, handle, value);
    CUgraphNodeParams params = condition(handle, CU_GRAPH_COND_TYPE_IF, 1);
    DO(cuGraphAddNode, &node, graph, &first, NULL, 1, &params);
    outer = params.conditional.phGraph_out[0];
    params = condition(loop, CU_GRAPH_COND_TYPE_WHILE, 1);
    DO(cuGraphAddNode, &node, outer, NULL, NULL, 0, &params);
    inner = params.conditional.phGraph_out[0];
    decide(inner, "count_down", NULL, loop, left);
    count(inner, counted);
    executable = start(graph);
    run(executable);
    say_word("not yet", counted);
    MUST(cuMemsetD32, value, 1, 1);
    run(executable);
    say_word("counted", counted);
    MUST(cuMemsetD32, left, 2, 1);
    run(executable);
    say_word("counted again", counted);
}

/* As most programs make bodies: by capture into them. */
CASE(graph_while_whose_body_is_captured)
{
    CUdeviceptr left = words_of(6), words = words_of(1), copied = words_of(0);
    unsigned int nr = NR;
    CUgraph graph, body, told;
    CUgraphNode node;
    CUgraphExec executable;
    CUstream stream;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNodeParams params = condition(handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    DO(cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    body = params.conditional.phGraph_out[0];
    DO(cuStreamBeginCaptureToGraph, stream, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
    say("launch", launch("add_one", 1, NR, stream, (void *[]){&words, &nr}));
    DO(cuMemcpyDtoDAsync, copied, words, NR * 4, stream);
    DO(cuMemsetD32Async, words + 8, 9, 2, stream);
    say("launch", launch("count_down", 1, 1, stream, (void *[]){&handle, &left}));
    DO(cuStreamEndCapture, stream, &told);
    say_number("the body", told == body);
    executable = start(graph);
    run(executable);
    say_device_bytes("words", words, NR * 4);
    say_device_bytes("copied", copied, NR * 4);
    say_word("left", left);
}

CASE(graph_conditions_that_cannot_be)
{
    CUgraph graph, other, clone;
    CUgraphNode node;
    CUgraphConditionalHandle handle, unused = 0;
    CUgraphNodeParams params;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuGraphCreate, &other, 0);
    handle = handle_of(graph, 0, 0);
    ROW("no place", cuGraphConditionalHandleCreate, NULL, graph, current(), 0, 0);
    ROW("no graph", cuGraphConditionalHandleCreate, &unused, NULL, current(), 0, 0);
    ROW("flags that are none", cuGraphConditionalHandleCreate, &unused, graph, current(), 0, 8);
    params = condition(handle, CU_GRAPH_COND_TYPE_IF, 0);
    ROW("no body", cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    params = condition(handle, CU_GRAPH_COND_TYPE_IF, 3);
    ROW("three bodies of an if", cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    params = condition(handle, CU_GRAPH_COND_TYPE_WHILE, 2);
    ROW("two bodies of a while", cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    params = condition(handle, 5, 1);
    ROW("a type that is none", cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    params = condition(handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    ROW("another graph's handle", cuGraphAddNode, &node, other, NULL, NULL, 0, &params);
    DO(cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    ROW("a handle that has a node", cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
    ROW("a conditional node", cuGraphClone, &clone, graph);
    ROW("a conditional node", cuGraphAddChildGraphNode, &node, other, NULL, 0, graph);
    DO(cuGraphDestroyNode, node);
}

CASE(graph_conditions_of_several_graphs)
{
    CUdeviceptr left[3], counted[3];
    CUgraphExec executables[3];

    for (unsigned int i = 0; i < 3; i++) {
        CUgraph graph;
        CUgraphNode node;

        left[i] = words_of(2 + i);
        counted[i] = words_of(0);
        MUST(cuGraphCreate, &graph, 0);
        CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
        CUgraphNodeParams params = condition(handle, CU_GRAPH_COND_TYPE_WHILE, 1);
        DO(cuGraphAddNode, &node, graph, NULL, NULL, 0, &params);
        decide(params.conditional.phGraph_out[0], "count_down", NULL, handle, left[i]);
        count(params.conditional.phGraph_out[0], counted[i]);
        executables[i] = start(graph);
    }
    for (unsigned int i = 0; i < 3; i++) {
        run(executables[i]);
    }
    for (unsigned int i = 0; i < 3; i++) {
        say_word("left", left[i]);
        say_device_bytes("counted", counted[i], NR * 4);
    }
}
