/* Graphs and memory that is not pinned: what the graph and its nodes tell, and how they are changed. */
#include "ordinary.h"

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
