/*
 * Graphs that copy from and to memory that is not pinned. NVIDIA's driver reads it in the thread that launches, at
 * once, so no case has a host function write what the same graph copies later.
 */
#include "case.h"

enum { BYTES = 3000, PITCH = 100, WIDTH = 60, ROWS = 7, SLICES = 3, MANY = 1 << 20 };

static void number_bytes(uint8_t *memory, size_t bytes, unsigned int seed)
{
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(seed + i * 5 + (i >> 8));
    }
}

static uint8_t *ordinary(size_t bytes, unsigned int seed)
{
    uint8_t *memory = malloc(bytes);
    number_bytes(memory, bytes, seed);
    return memory;
}

static CUcontext current(void)
{
    CUcontext context;
    MUST(cuCtxGetCurrent, &context);
    return context;
}

static CUDA_MEMCPY3D to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = from,
                           .srcPitch = bytes,
                           .srcHeight = 1,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = bytes,
                           .dstHeight = 1,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMCPY3D from_device(void *to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = bytes,
                           .srcHeight = 1,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = to,
                           .dstPitch = bytes,
                           .dstHeight = 1,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

struct look {
    const uint8_t *memory;
    size_t bytes;
    unsigned int sum;
};

/* What a host function finds in the memory. */
static void look(void *data)
{
    struct look *what = data;
    for (size_t i = 0; i < what->bytes; i++) {
        what->sum = what->sum * 31 + what->memory[i];
    }
}

/* A copy of ordinary memory to the device, one from there, and a host node that looks at what came. */
struct graph {
    CUgraph graph;
    CUgraphNode host, in, out;
    CUgraphExec executable;
    CUdeviceptr device;
    uint8_t *from, *to;
    struct look look;
};

static void graph_make(struct graph *made, size_t bytes)
{
    *made = (struct graph){.device = device_bytes(bytes, 0), .from = ordinary(bytes, 1), .to = ordinary(bytes, 2)};
    made->look = (struct look){.memory = made->to, .bytes = bytes};
    CUDA_HOST_NODE_PARAMS host = {.fn = look, .userData = &made->look};
    CUDA_MEMCPY3D in = to_device(made->device, made->from, bytes), out = from_device(made->to, made->device, bytes);
    MUST(cuGraphCreate, &made->graph, 0);
    DO(cuGraphAddMemcpyNode, &made->in, made->graph, NULL, 0, &in, current());
    DO(cuGraphAddMemcpyNode, &made->out, made->graph, &made->in, 1, &out, current());
    MUST(cuGraphAddHostNode, &made->host, made->graph, &made->out, 1, &host);
}

static void graph_start(struct graph *made)
{
    DO(cuGraphInstantiateWithFlags, &made->executable, made->graph, 0);
}

static void run(CUgraphExec executable, const char *label, const void *memory, size_t bytes)
{
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_bytes(label, memory, bytes);
}

static long long number_of(const struct graph *made, CUgraphNode node)
{
    return !node ? 0 : node == made->host ? 1 : node == made->in ? 2 : node == made->out ? 3 : -1;
}

CASE(ordinary_memory_in_a_graph)
{
    struct graph made;

    graph_make(&made, BYTES);
    graph_start(&made);
    run(made.executable, "at first", made.to, BYTES);
    number_bytes(made.from, BYTES, 40);
    run(made.executable, "then", made.to, BYTES);
    say_number("as a host node saw it", made.look.sum);
    say_device_bytes("on the device", made.device, BYTES);
    DO(cuGraphDestroy, made.graph);
    number_bytes(made.from, BYTES, 41);
    run(made.executable, "without the graph", made.to, BYTES);
    say_number("as a host node saw it", made.look.sum);
    DO(cuGraphExecDestroy, made.executable);
}

CASE(ordinary_memory_of_a_graph_that_is_large)
{
    struct graph made;

    graph_make(&made, 9 * MANY + 13);
    graph_start(&made);
    run(made.executable, "once", made.to, 9 * MANY + 13);
    number_bytes(made.from, 9 * MANY + 13, 5);
    run(made.executable, "again", made.to, 9 * MANY + 13);
    say_number("as a host node saw it", made.look.sum);
}

/* It has been read and written when the launch returns. */
CASE(ordinary_memory_that_changes_after_the_launch)
{
    struct graph made;
    uint8_t *before = malloc(BYTES);

    graph_make(&made, BYTES);
    graph_start(&made);
    for (unsigned int i = 0; i < 5; i++) {
        number_bytes(made.from, BYTES, 60 + i);
        MUST(cuGraphLaunch, made.executable, NULL);
        number_bytes(made.from, BYTES, 80 + i);
        memcpy(before, made.to, BYTES);
        MUST(cuStreamSynchronize, NULL);
        say_bytes("before the synchronisation", before, BYTES);
        say_bytes("behind it", made.to, BYTES);
    }
}

/* What one node copies to ordinary memory the next one copies from there. */
CASE(ordinary_memory_on_the_way)
{
    CUdeviceptr one = device_bytes(BYTES, 3), other = device_bytes(BYTES, 4);
    uint8_t *between = ordinary(BYTES, 5);
    CUDA_MEMCPY3D out = from_device(between, one, BYTES), in = to_device(other, between, BYTES);
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec executable;

    MUST(cuGraphCreate, &graph, 0);
    DO(cuGraphAddMemcpyNode, &first, graph, NULL, 0, &out, current());
    DO(cuGraphAddMemcpyNode, &second, graph, &first, 1, &in, current());
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    run(executable, "between", between, BYTES);
    say_device_bytes("there", other, BYTES);
}

CASE(ordinary_memory_and_what_is_in_the_graph)
{
    struct graph made;
    CUgraphNode nodes[8], ends[8];
    CUgraphNodeType type;
    size_t nr = 8;

    graph_make(&made, BYTES);
    DO(cuGraphGetNodes, made.graph, nodes, &nr);
    say_number("nodes", (long long)nr);
    long long sum = 0;
    for (size_t i = 0; i < nr; i++) {
        sum += number_of(&made, nodes[i]);
        MUST(cuGraphNodeGetType, nodes[i], &type);
        sum += 100 * (type == CU_GRAPH_NODE_TYPE_MEMCPY) + 10000 * (type == CU_GRAPH_NODE_TYPE_HOST);
    }
    say_number("which", sum);
    DO(cuGraphGetNodes, made.graph, NULL, &nr);
    say_number("nodes, without asking which", (long long)nr);
    nr = 8;
    DO(cuGraphGetRootNodes, made.graph, nodes, &nr);
    say_number("roots", (long long)nr);
    say_number("root", number_of(&made, nodes[0]));
    nr = 8;
    DO(cuGraphGetEdges, made.graph, nodes, ends, NULL, &nr);
    say_number("edges", (long long)nr);
    for (size_t i = 0, at = 0; i < nr; i++) {
        at = number_of(&made, nodes[0]) == 2 ? i : nr - 1 - i;
        say_number("from", number_of(&made, nodes[at]));
        say_number("to", number_of(&made, ends[at]));
    }
    nr = 8;
    DO(cuGraphNodeGetDependencies, made.out, nodes, NULL, &nr);
    say_number("before the last", (long long)nr);
    say_number("which", number_of(&made, nodes[0]));
    nr = 8;
    DO(cuGraphNodeGetDependencies, made.in, nodes, NULL, &nr);
    say_number("before the copy", (long long)nr);
    say_number("which", number_of(&made, nodes[0]));
    nr = 8;
    DO(cuGraphNodeGetDependentNodes, made.in, nodes, NULL, &nr);
    say_number("behind the copy", (long long)nr);
    say_number("which", number_of(&made, nodes[0]));
    DO(cuGraphNodeGetDependentNodes, made.out, NULL, NULL, &nr);
    say_number("behind the last", (long long)nr);

    DO(cuGraphRemoveDependencies, made.graph, &made.in, &made.out, NULL, 1);
    nr = 8;
    DO(cuGraphGetRootNodes, made.graph, nodes, &nr);
    say_number("roots, without an edge", (long long)nr);
    DO(cuGraphAddDependencies, made.graph, &made.in, &made.out, NULL, 1);
    ROW("an edge that is there", cuGraphAddDependencies, made.graph, &made.in, &made.out, NULL, 1);
    graph_start(&made);
    run(made.executable, "with the edge again", made.to, BYTES);

    DO(cuGraphDestroyNode, made.out);
    nr = 8;
    DO(cuGraphGetNodes, made.graph, NULL, &nr);
    say_number("nodes, without the copy", (long long)nr);
    DO(cuGraphGetEdges, made.graph, NULL, NULL, NULL, &nr);
    say_number("edges, without the copy", (long long)nr);
    nr = 8;
    DO(cuGraphGetRootNodes, made.graph, nodes, &nr);
    say_number("roots, without the copy", (long long)nr);
}

CASE(ordinary_memory_as_a_node_tells)
{
    struct graph made;
    CUDA_MEMCPY3D in, out;

    graph_make(&made, BYTES);
    DO(cuGraphMemcpyNodeGetParams, made.in, &in);
    say_number("type", in.srcMemoryType);
    say_number("from", in.srcHost == made.from);
    say_number("to", in.dstDevice == made.device);
    say_number("width", (long long)in.WidthInBytes);
    DO(cuGraphMemcpyNodeGetParams, made.out, &out);
    say_number("type", out.dstMemoryType);
    say_number("to", out.dstHost == made.to);
    DO(cuGraphMemcpyNodeSetParams, made.in, &in);
    DO(cuGraphMemcpyNodeSetParams, made.out, &out);
    graph_start(&made);
    run(made.executable, "as it was", made.to, BYTES);
    in.srcHost = made.from + 7;
    in.WidthInBytes = 100;
    DO(cuGraphMemcpyNodeSetParams, made.in, &in);
    DO(cuGraphMemcpyNodeGetParams, made.in, &in);
    say_number("from", in.srcHost == made.from + 7);
    graph_start(&made);
    run(made.executable, "of a part", made.to, BYTES);
}

CASE(ordinary_memory_in_two_and_three_dimensions)
{
    enum { SIZE = PITCH * (ROWS + 3) * (SLICES + 1) };
    CUdeviceptr device = device_bytes(SIZE, 3);
    uint8_t *from = ordinary(SIZE, 4), *to = ordinary(SIZE, 5);
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcXInBytes = 3,
                        .srcY = 1,
                        .srcPitch = PITCH,
                        .srcHeight = ROWS + 3,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = device,
                        .dstXInBytes = 8,
                        .dstY = 2,
                        .dstZ = 1,
                        .dstPitch = PITCH,
                        .dstHeight = ROWS + 2,
                        .WidthInBytes = WIDTH,
                        .Height = ROWS,
                        .Depth = 1};
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = device,
                         .srcPitch = PITCH,
                         .srcHeight = ROWS + 2,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to,
                         .dstXInBytes = 11,
                         .dstY = 2,
                         .dstZ = 1,
                         .dstPitch = PITCH,
                         .dstHeight = ROWS + 3,
                         .WidthInBytes = WIDTH,
                         .Height = ROWS,
                         .Depth = SLICES};
    CUgraph graph;
    CUgraphNode first, last;
    CUgraphExec executable;

    MUST(cuGraphCreate, &graph, 0);
    DO(cuGraphAddMemcpyNode, &first, graph, NULL, 0, &in, current());
    DO(cuGraphAddMemcpyNode, &last, graph, &first, 1, &out, current());
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    run(executable, "a box", to, SIZE);
    say_device_bytes("on the device", device, SIZE);
    number_bytes(from, SIZE, 77);
    run(executable, "other bytes", to, SIZE);
    in.Depth = SLICES - 1;
    DO(cuGraphExecMemcpyNodeSetParams, executable, first, &in, current());
    run(executable, "a deeper one", to, SIZE);
    in.srcPitch = WIDTH - 1;
    ROW("rows that overlap", cuGraphAddMemcpyNode, &last, graph, NULL, 0, &in, current());
    in.srcPitch = PITCH;
    in.srcHost = NULL;
    ROW("no memory", cuGraphAddMemcpyNode, &last, graph, NULL, 0, &in, current());
}

CASE(ordinary_memory_that_an_executable_graph_gets)
{
    struct graph made;
    uint8_t *others[] = {ordinary(BYTES, 9), ordinary(BYTES, 10)}, *pinned;

    graph_make(&made, BYTES);
    graph_start(&made);
    MUST(cuMemHostAlloc, (void **)&pinned, BYTES, 0);
    for (unsigned int i = 0; i < 6; i++) {
        CUDA_MEMCPY3D in = to_device(made.device, others[i & 1], BYTES - 10 * i), out;
        DO(cuGraphExecMemcpyNodeSetParams, made.executable, made.in, &in, current());
        out = from_device(others[1 - (i & 1)], made.device, BYTES);
        DO(cuGraphExecMemcpyNodeSetParams, made.executable, made.out, &out, current());
        DO(cuGraphLaunch, made.executable, NULL); /* not waited for: the next one changes nothing of it */
    }
    DO(cuStreamSynchronize, NULL);
    say_bytes("one", others[0], BYTES);
    say_bytes("the other", others[1], BYTES);
    say_bytes("the first", made.to, BYTES);
    for (unsigned int i = 0; i < 2; i++) {
        CUDA_MEMCPY3D in = to_device(made.device, pinned, BYTES);
        number_bytes(pinned, BYTES, i);
        DO(cuGraphExecMemcpyNodeSetParams, made.executable, made.in, &in, current());
        run(made.executable, "of pinned memory", others[0], BYTES);
        in.srcHost = others[1];
        number_bytes(others[1], BYTES, 20 + i);
        DO(cuGraphExecMemcpyNodeSetParams, made.executable, made.in, &in, current());
        run(made.executable, "of ordinary memory again", others[0], BYTES);
    }
}

CASE(ordinary_memory_of_a_node_that_is_disabled)
{
    struct graph made;
    uint8_t *other = ordinary(BYTES, 12);

    graph_make(&made, BYTES);
    graph_start(&made);
    DO(cuGraphNodeSetEnabled, made.executable, made.out, 0);
    run(made.executable, "not copied", made.to, BYTES);
    DO(cuGraphNodeSetEnabled, made.executable, made.out, 1);
    number_bytes(made.from, BYTES, 43);
    run(made.executable, "copied", made.to, BYTES);
    CUDA_MEMCPY3D out = from_device(other, made.device, BYTES);
    DO(cuGraphExecMemcpyNodeSetParams, made.executable, made.out, &out, current());
    DO(cuGraphNodeSetEnabled, made.executable, made.out, 0);
    run(made.executable, "not copied", other, BYTES);
    DO(cuGraphNodeSetEnabled, made.executable, made.out, 1);
    run(made.executable, "copied elsewhere", other, BYTES);
    say_bytes("as it was", made.to, BYTES);
}

CASE(ordinary_memory_of_clones_and_children)
{
    struct graph made;
    CUgraph clone, parent, child;
    CUgraphNode found, node, nodes[8];
    CUgraphExec executable;
    CUDA_MEMCPY3D params;
    size_t nr = 8;

    graph_make(&made, BYTES);
    DO(cuGraphClone, &clone, made.graph);
    DO(cuGraphNodeFindInClone, &found, made.out, clone);
    DO(cuGraphMemcpyNodeGetParams, found, &params);
    say_number("to", params.dstHost == made.to);
    DO(cuGraphGetNodes, clone, NULL, &nr);
    say_number("nodes", (long long)nr);
    DO(cuGraphDestroy, made.graph);
    DO(cuGraphInstantiateWithFlags, &executable, clone, 0);
    run(executable, "of the clone", made.to, BYTES);
    number_bytes(made.from, BYTES, 42);

    MUST(cuGraphCreate, &parent, 0);
    DO(cuGraphAddChildGraphNode, &node, parent, NULL, 0, clone);
    DO(cuGraphAddChildGraphNode, &node, parent, &node, 1, clone);
    DO(cuGraphDestroy, clone);
    DO(cuGraphChildGraphNodeGetGraph, node, &child);
    nr = 8;
    DO(cuGraphGetNodes, child, nodes, &nr);
    say_number("nodes of the child", (long long)nr);
    DO(cuGraphInstantiateWithFlags, &executable, parent, 0);
    run(executable, "of two children", made.to, BYTES);
    run(executable, "again", made.to, BYTES);
}

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
