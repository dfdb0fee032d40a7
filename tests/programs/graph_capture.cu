/*
 * Work captured from streams that fork and join through events, launched many times: what it computes, what is in the
 * graph, launches with other data, an update from a second capture, and a clone.
 */
#include "check.h"

__global__ void scale(int *data, int nr, int factor)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        data[i] *= factor;
    }
}

__global__ void add(int *to, const int *from, int nr)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        to[i] += from[i];
    }
}

static const int nr = 4096;
static const size_t bytes = nr * sizeof(int);

/* to = 3 * source + factor * source, in two streams. */
static cudaGraph_t capture(cudaStream_t first, cudaStream_t second, int *a, int *b, const int *source, int *result,
                           int factor)
{
    cudaEvent_t forked, joined;
    cudaGraph_t graph;
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(a, source, bytes, cudaMemcpyHostToDevice, first));
    CHECK(cudaEventRecord(forked, first));
    CHECK(cudaStreamWaitEvent(second, forked, 0));
    CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, second));
    scale<<<nr / 256, 256, 0, second>>>(b, nr, factor);
    CHECK(cudaEventRecord(joined, second));
    CHECK(cudaStreamWaitEvent(first, joined, 0));
    scale<<<nr / 256, 256, 0, first>>>(a, nr, 3);
    add<<<nr / 256, 256, 0, first>>>(a, b, nr);
    CHECK(cudaMemsetAsync(b, 0, bytes, first));
    CHECK(cudaMemcpyAsync(result, a, bytes, cudaMemcpyDeviceToHost, first));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(second, &status));
    std::printf("the second stream is capturing: %d\n", status == cudaStreamCaptureStatusActive);
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaStreamIsCapturing(second, &status));
    std::printf("and no longer: %d\n", status == cudaStreamCaptureStatusNone);
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    return graph;
}

static int nr_wrong(const int *result, const int *source, int factor)
{
    int wrong = 0;
    for (int i = 0; i < nr; i++) {
        wrong += result[i] != source[i] * (3 + factor);
    }
    return wrong;
}

static void describe(cudaGraph_t graph)
{
    size_t nr_nodes = 0, nr_edges = 0, nr_roots = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nr_nodes));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &nr_roots));
    cudaGraphNode_t nodes[16], from[32], to[32];
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &nr_edges));
    CHECK(cudaGraphGetEdges(graph, from, to, nullptr, &nr_edges));
#else
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, &nr_edges));
    CHECK(cudaGraphGetEdges(graph, from, to, &nr_edges));
#endif
    std::printf("%zu nodes, %zu roots, %zu edges, types", nr_nodes, nr_roots, nr_edges);
    CHECK(cudaGraphGetNodes(graph, nodes, &nr_nodes));
    int counts[16] = {};
    for (size_t i = 0; i < nr_nodes; i++) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        counts[type]++;
    }
    for (int type = 0; type < 16; type++) {
        if (counts[type]) {
            std::printf(" %d: %d", type, counts[type]);
        }
    }
    std::printf("\n");
}

int main()
{
    int *a, *b, *source, *result, wrong = 0;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMallocHost(&source, bytes));
    CHECK(cudaMallocHost(&result, bytes));
    for (int i = 0; i < nr; i++) {
        source[i] = i;
    }
    cudaStream_t first, second;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    scale<<<1, 1, 0, second>>>(b, 0, 1); /* work before the capture is no part of it */

    cudaGraph_t graph = capture(first, second, a, b, source, result, 5);
    describe(graph);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, first));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < nr; i++) {
            source[i] = i * 7 - round;
        }
        CHECK(cudaGraphLaunch(exec, round % 2 ? second : first));
        CHECK(cudaStreamSynchronize(round % 2 ? second : first));
        wrong += nr_wrong(result, source, 5);
    }
    std::printf("20 launches, %d wrong\n", wrong);

    cudaGraph_t other = capture(first, second, a, b, source, result, 11);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    CHECK(cudaGraphLaunch(exec, first));
    CHECK(cudaStreamSynchronize(first));
    wrong += nr_wrong(result, source, 11);
    std::printf("updated: %d, %d wrong\n", (int)info.result, wrong);

    cudaGraph_t clone;
    cudaGraphExec_t of_clone;
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphDestroy(graph));
    describe(clone);
    CHECK(cudaGraphInstantiate(&of_clone, clone, 0));
    CHECK(cudaGraphLaunch(of_clone, first));
    CHECK(cudaGraphExecDestroy(of_clone)); /* what was launched goes on */
    CHECK(cudaStreamSynchronize(first));
    wrong += nr_wrong(result, source, 5);

    /* A launch that is captured is a graph in the graph. */
    CHECK(cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaGraphLaunch(exec, second));
    scale<<<nr / 256, 256, 0, second>>>(a, nr, 2);
    cudaGraph_t outer;
    CHECK(cudaStreamEndCapture(second, &outer));
    describe(outer);
    cudaGraphExec_t outer_exec;
    CHECK(cudaGraphInstantiate(&outer_exec, outer, 0));
    CHECK(cudaGraphLaunch(outer_exec, first));
    CHECK(cudaMemcpyAsync(result, a, bytes, cudaMemcpyDeviceToHost, first));
    CHECK(cudaStreamSynchronize(first));
    for (int i = 0; i < nr; i++) {
        wrong += result[i] != source[i] * (3 + 11) * 2;
    }
    std::printf("a graph within a graph, %d wrong\n", wrong);

    CHECK(cudaGraphExecDestroy(outer_exec));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(outer));
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    return verdict(wrong == 0);
}
