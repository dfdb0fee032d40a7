/* Graphs and memory that is not pinned: what is copied, and when. */
#include "ordinary.h"

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
