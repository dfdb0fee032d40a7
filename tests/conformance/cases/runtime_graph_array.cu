/* Copies from and to arrays in graphs: captured, as nodes, and changed in what was instantiated. */
#include <vector>

#include "runtime.cuh"

enum { WIDTH = 48, HEIGHT = 20 };

static const size_t ROW = WIDTH * sizeof(unsigned int), BYTES = ROW * HEIGHT;

static cudaArray_t array_of()
{
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned int>();
    cudaArray_t array = nullptr;
    cudaMallocArray(&array, &format, WIDTH, HEIGHT);
    return array;
}

static void say_array(const char *label, cudaArray_t array)
{
    std::vector<unsigned int> found(WIDTH * HEIGHT);
    cudaMemcpy2DFromArray(found.data(), ROW, array, 0, 0, ROW, HEIGHT, cudaMemcpyDeviceToHost);
    say_bytes(label, found.data(), BYTES);
}

static cudaMemcpy3DParms between(cudaPitchedPtr from, cudaArray_t from_array, cudaPitchedPtr to, cudaArray_t to_array)
{
    cudaMemcpy3DParms copy = {};
    copy.srcArray = from_array;
    copy.srcPtr = from;
    copy.dstArray = to_array;
    copy.dstPtr = to;
    copy.extent = make_cudaExtent(from_array || to_array ? WIDTH : ROW, HEIGHT, 1);
    copy.kind = cudaMemcpyDefault;
    return copy;
}

static cudaPitchedPtr rows(void *memory)
{
    return make_cudaPitchedPtr(memory, ROW, ROW, HEIGHT);
}

static void run(cudaGraph_t graph)
{
    cudaGraphExec_t executable = nullptr;
    DO(cudaGraphInstantiate(&executable, graph, 0));
    DO(cudaGraphLaunch(executable, nullptr));
    DO(cudaStreamSynchronize(nullptr));
    DO(cudaGraphExecDestroy(executable));
}

CASE(runtime_graph_array_captured)
{
    unsigned int *words = device_words(WIDTH * HEIGHT, 5), *back = device_words(WIDTH * HEIGHT, 0), *pinned = nullptr;
    cudaArray_t one = array_of(), other = array_of();
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    cudaStreamCreate(&stream);
    cudaMallocHost(&pinned, BYTES);
    for (unsigned int i = 0; i < WIDTH * HEIGHT; i++) {
        pinned[i] = i * 3;
    }
    DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    DO(cudaMemcpy2DToArrayAsync(one, 0, 0, words, ROW, ROW, HEIGHT, cudaMemcpyDeviceToDevice, stream));
    DO(cudaMemcpy2DToArrayAsync(other, 0, 0, pinned, ROW, ROW, HEIGHT, cudaMemcpyHostToDevice, stream));
    DO(cudaMemcpy2DFromArrayAsync(back, ROW, one, 0, 0, ROW, HEIGHT, cudaMemcpyDeviceToDevice, stream));
    DO(cudaStreamEndCapture(stream, &graph));
    run(graph);
    say_array("one", one);
    say_array("other", other);
    say_device_bytes("back", back, BYTES);
}

CASE(runtime_graph_array_nodes)
{
    unsigned int *words = device_words(WIDTH * HEIGHT, 5), *back = device_words(WIDTH * HEIGHT, 0), *pinned = nullptr;
    cudaArray_t one = array_of(), other = array_of();
    cudaGraphNode_t in, across, out;
    cudaGraph_t graph = nullptr, clone = nullptr;
    cudaMallocHost(&pinned, BYTES);
    cudaMemcpy3DParms copy = between(rows(words), nullptr, {}, one), told = {};
    DO(cudaGraphCreate(&graph, 0));
    DO(cudaGraphAddMemcpyNode(&in, graph, nullptr, 0, &copy));
    copy = between({}, one, {}, other);
    DO(cudaGraphAddMemcpyNode(&across, graph, &in, 1, &copy));
    copy = between({}, other, rows(back), nullptr);
    DO(cudaGraphAddMemcpyNode(&out, graph, &across, 1, &copy));
    copy = between({}, one, rows(pinned), nullptr);
    DO(cudaGraphAddMemcpyNode(&out, graph, &in, 1, &copy));
    run(graph);
    say_array("one", one);
    say_array("other", other);
    say_device_bytes("back", back, BYTES);
    say_bytes("pinned", pinned, BYTES);
    DO(cudaGraphMemcpyNodeGetParams(across, &told));
    say_number("arrays", (told.srcArray == one) + 2 * (told.dstArray == other));
    say_number("extent", (long long)(told.extent.width * 10000 + told.extent.height * 10 + told.extent.depth));
    DO(cudaMemset(words, 9, BYTES));
    DO(cudaGraphClone(&clone, graph));
    run(clone);
    say_array("of the clone", other);
}

CASE(runtime_graph_array_changed)
{
    unsigned int *words = device_words(WIDTH * HEIGHT, 5), *others = device_words(WIDTH * HEIGHT, 1000);
    cudaArray_t one = array_of(), other = array_of();
    cudaGraphNode_t node;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaMemcpy3DParms copy = between(rows(words), nullptr, {}, one);
    DO(cudaGraphCreate(&graph, 0));
    DO(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy));
    DO(cudaGraphInstantiate(&executable, graph, 0));
    copy = between(rows(others), nullptr, {}, one);
    DO(cudaGraphExecMemcpyNodeSetParams(executable, node, &copy));
    DO(cudaGraphLaunch(executable, nullptr));
    DO(cudaStreamSynchronize(nullptr));
    say_array("one", one);
    copy = between(rows(others), nullptr, {}, other);
    DO(cudaGraphMemcpyNodeSetParams(node, &copy));
    run(graph);
    say_array("other", other);
    DO(cudaGraphExecDestroy(executable));
}

/* The other side is memory that is not pinned: what it holds when the graph runs is what is copied. */
CASE(runtime_graph_array_ordinary)
{
    std::vector<unsigned int> in(WIDTH * HEIGHT), out(WIDTH * HEIGHT);
    cudaArray_t array = array_of();
    cudaGraphNode_t first, second;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaMemcpy3DParms copy = between(rows(in.data()), nullptr, {}, array);
    DO(cudaGraphCreate(&graph, 0));
    DO(cudaGraphAddMemcpyNode(&first, graph, nullptr, 0, &copy));
    copy = between({}, array, rows(out.data()), nullptr);
    DO(cudaGraphAddMemcpyNode(&second, graph, &first, 1, &copy));
    DO(cudaGraphInstantiate(&executable, graph, 0));
    for (unsigned int round = 1; round < 4; round++) {
        for (size_t i = 0; i < in.size(); i++) {
            in[i] = round * 1000 + (unsigned int)i;
        }
        DO(cudaGraphLaunch(executable, nullptr));
        DO(cudaStreamSynchronize(nullptr));
        say_bytes("out", out.data(), BYTES);
    }
    say_array("array", array);
    DO(cudaGraphExecDestroy(executable));
}
