/* Graphs and memory that is not pinned: captured. */
#include "ordinary.h"

static CUgraph captured(struct graph *made, CUstream stream, uint8_t *other)
{
    CUgraph graph;
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = made->device,
                         .srcPitch = PITCH,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = other,
                         .dstXInBytes = 5,
                         .dstPitch = PITCH + 7,
                         .WidthInBytes = WIDTH,
                         .Height = ROWS};

    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    DO(cuMemcpyHtoDAsync, made->device, made->from, BYTES, stream);
    DO(cuMemcpy2DAsync, &box, stream);
    DO(cuMemcpyDtoHAsync, made->to, made->device, BYTES, stream);
    DO(cuLaunchHostFunc, stream, look, &made->look);
    DO(cuStreamEndCapture, stream, &graph);
    return graph;
}

CASE(ordinary_memory_that_is_captured)
{
    struct graph made = {.device = device_bytes(BYTES, 0), .from = ordinary(BYTES, 1), .to = ordinary(BYTES, 2)};
    uint8_t *other = ordinary(BYTES, 3);
    CUstream stream;
    CUgraph graph, again;
    CUgraphExecUpdateResultInfo info;
    size_t nr = 0;

    made.look = (struct look){.memory = made.to, .bytes = BYTES};
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    graph = captured(&made, stream, other);
    DO(cuGraphGetNodes, graph, NULL, &nr);
    say_number("nodes", (long long)nr);
    DO(cuGraphGetEdges, graph, NULL, NULL, NULL, &nr);
    say_number("edges", (long long)nr);
    DO(cuGraphInstantiateWithFlags, &made.executable, graph, 0);
    for (unsigned int i = 0; i < 3; i++) {
        number_bytes(made.from, BYTES, 90 + i);
        DO(cuGraphLaunch, made.executable, stream);
        DO(cuStreamSynchronize, stream);
        say_bytes("all", made.to, BYTES);
        say_bytes("the box", other, BYTES);
        say_number("as a host function saw it", made.look.sum);
    }
    made.to = ordinary(BYTES, 4);
    again = captured(&made, stream, other);
    DO(cuGraphExecUpdate, made.executable, again, &info);
    say_number("updated", info.result);
    DO(cuGraphDestroy, graph);
    DO(cuGraphDestroy, again);
    DO(cuGraphLaunch, made.executable, stream);
    DO(cuStreamSynchronize, stream);
    say_bytes("elsewhere", made.to, BYTES);
}

CASE(ordinary_memory_that_is_captured_in_two_streams)
{
    CUdeviceptr one = device_bytes(BYTES, 0), two = device_bytes(BYTES, 1);
    uint8_t *from = ordinary(BYTES, 5), *to = ordinary(BYTES, 6);
    CUstream stream, aside;
    CUevent forked, joined;
    CUgraph graph, told;
    CUgraphExec executable;
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    CUgraphNodeType type;
    cuuint64_t id;
    size_t nr = 0;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &aside, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &forked, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &joined, CU_EVENT_DISABLE_TIMING);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    DO(cuMemcpyHtoDAsync, one, from, BYTES, stream);
    DO(cuEventRecord, forked, stream);
    DO(cuStreamWaitEvent, aside, forked, 0);
    DO(cuMemcpyHtoDAsync, two, from + 100, BYTES - 100, aside);
    DO(cuEventRecord, joined, aside);
    DO(cuMemcpyDtoHAsync, to, one, 500, stream);
    DO(cuStreamWaitEvent, stream, joined, 0);
    DO(cuStreamGetCaptureInfo, stream, &status, &id, &told, &nodes, NULL, &nr);
    say_number("last nodes", (long long)nr);
    for (size_t i = 0; i < nr; i++) {
        MUST(cuGraphNodeGetType, nodes[i], &type);
        say_number("type", type);
    }
    DO(cuMemcpyDtoHAsync, to + 1000, two, 500, stream);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphGetNodes, graph, NULL, &nr);
    say_number("nodes", (long long)nr);
    DO(cuGraphGetEdges, graph, NULL, NULL, NULL, &nr);
    say_number("edges", (long long)nr);
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    DO(cuGraphLaunch, executable, stream);
    DO(cuStreamSynchronize, stream);
    say_bytes("both", to, BYTES);
    number_bytes(from, BYTES, 33);
    DO(cuGraphLaunch, executable, stream);
    DO(cuStreamSynchronize, stream);
    say_bytes("both again", to, BYTES);
}

/* It becomes a child of what is captured, and outlives what was launched. */
CASE(ordinary_memory_of_a_launch_that_is_captured)
{
    struct graph made;
    CUgraph graph;
    CUgraphExec executable;
    CUstream stream;

    graph_make(&made, BYTES);
    graph_start(&made);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    DO(cuGraphLaunch, made.executable, stream);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphExecDestroy, made.executable);
    DO(cuGraphDestroy, made.graph);
    number_bytes(made.from, BYTES, 70);
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    run(executable, "of the child", made.to, BYTES);
    say_number("as a host node saw it", made.look.sum);
}
