/* Nodes that wait for values in memory and write them: captured, by hand, cloned, and changed. */
#include "case.h"

static CUcontext current(void)
{
    CUcontext context;
    MUST(cuCtxGetCurrent, &context);
    return context;
}

static CUstreamBatchMemOpParams write_32(CUdeviceptr at, unsigned int value)
{
    CUstreamBatchMemOpParams one;
    memset(&one, 0, sizeof(one));
    one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    one.writeValue.address = at;
    one.writeValue.value = value;
    return one;
}

static CUstreamBatchMemOpParams wait_64(CUdeviceptr at, unsigned long long value)
{
    CUstreamBatchMemOpParams one;
    memset(&one, 0, sizeof(one));
    one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    one.waitValue.address = at;
    one.waitValue.value64 = value;
    one.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return one;
}

static CUdeviceptr words(void)
{
    CUdeviceptr memory;
    MUST(cuMemAlloc, &memory, 64);
    MUST(cuMemsetD32, memory, 0, 16);
    return memory;
}

static void run(CUgraph graph)
{
    CUgraphExec executable = NULL;
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    DO(cuGraphExecDestroy, executable);
}

CASE(graph_values_captured)
{
    CUdeviceptr memory = words();
    CUstreamBatchMemOpParams batch[] = {write_32(memory + 16, 5), wait_64(memory + 8, 0), write_32(memory + 20, 6)};
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphNode nodes[4];
    CUgraphNodeType type = 77;
    size_t nr = 4;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    DO(cuStreamWriteValue32, stream, memory, 7, 0);
    DO(cuStreamWaitValue32, stream, memory, 7, CU_STREAM_WAIT_VALUE_GEQ);
    DO(cuStreamBatchMemOp, stream, 3, batch, 0);
    say_text("fill", result_name(fill(memory + 32, 100, 4, stream)));
    DO(cuStreamEndCapture, stream, &graph);
    MUST(cuGraphGetNodes, graph, nodes, &nr);
    say_number("nodes", (long long)nr);
    for (size_t i = 0; i < nr && i < 4; i++) {
        MUST(cuGraphNodeGetType, nodes[i], &type);
        say_number("type", type);
    }
    run(graph);
    say_device_bytes("memory", memory, 64);
}

CASE(graph_values_by_hand)
{
    CUdeviceptr memory = words();
    CUstreamBatchMemOpParams batch[] = {write_32(memory, 5), write_32(memory + 4, 6)};
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = current(), .count = 2, .paramArray = batch}, told;
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    CUgraph graph, clone;
    CUgraphNode first, second;
    CUgraphExec executable = NULL;

    MUST(cuGraphCreate, &graph, 0);
    DO(cuGraphAddBatchMemOpNode, &first, graph, NULL, 0, &params);
    batch[0] = wait_64(memory, 5 | 6ull << 32);
    batch[1] = write_32(memory + 8, 7);
    any.memOp.ctx = current();
    any.memOp.count = 2;
    any.memOp.paramArray = batch;
    DO(cuGraphAddNode, &second, graph, &first, NULL, 1, &any);
    run(graph);
    say_device_bytes("memory", memory, 64);
    memset(&told, 0, sizeof(told));
    DO(cuGraphBatchMemOpNodeGetParams, second, &told);
    say_number("operations", told.count);
    if (told.count == 2) {
        say_number("first", told.paramArray[0].operation);
        say_number("it waits for", (long long)told.paramArray[0].waitValue.value64);
        say_number("second", told.paramArray[1].operation);
        say_number("it writes", told.paramArray[1].writeValue.value);
    }
    DO(cuGraphClone, &clone, graph);
    MUST(cuMemsetD32, memory, 0, 16);
    run(clone);
    say_device_bytes("by the clone", memory, 64);
    batch[0] = write_32(memory + 12, 70);
    params.count = 1;
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    DO(cuGraphExecBatchMemOpNodeSetParams, executable, first, &params);
    batch[0] = write_32(memory + 16, 71);
    DO(cuGraphBatchMemOpNodeSetParams, second, &params);
    MUST(cuMemsetD32, memory, 5, 1);
    MUST(cuMemsetD32, memory + 4, 6, 1);
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("changed there", memory, 64);
    run(graph);
    say_device_bytes("changed here", memory, 64);
    DO(cuGraphExecDestroy, executable);
}

CASE(graph_values_wrong)
{
    CUdeviceptr memory = words();
    CUstreamBatchMemOpParams one = write_32(memory, 5);
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = current(), .count = 0, .paramArray = &one};
    CUgraph graph;
    CUgraphNode node;

    MUST(cuGraphCreate, &graph, 0);
    ROW("no operation", cuGraphAddBatchMemOpNode, &node, graph, NULL, 0, &params);
    params.count = 1;
    params.paramArray = NULL;
    ROW("no array", cuGraphAddBatchMemOpNode, &node, graph, NULL, 0, &params);
    params.paramArray = &one;
    params.flags = 8;
    ROW("flags", cuGraphAddBatchMemOpNode, &node, graph, NULL, 0, &params);
    params.flags = 0;
    one.operation = 99;
    ROW("an operation that is none", cuGraphAddBatchMemOpNode, &node, graph, NULL, 0, &params);
    MUST(cuGraphAddEmptyNode, &node, graph, NULL, 0);
    ROW("a node of another kind", cuGraphBatchMemOpNodeGetParams, node, &params);
    ROW("no operation", cuStreamBatchMemOp, NULL, 0, &one, 0);
}
