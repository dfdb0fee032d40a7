/* What the cases of managed memory share. */
#ifndef CONFORMANCE_RUNTIME_MANAGED_CUH
#define CONFORMANCE_RUNTIME_MANAGED_CUH

#include <vector>

#include "runtime.cuh"

static const size_t NR = 300000;

static __global__ void add(unsigned int *values, size_t nr, unsigned int what)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < nr; i += gridDim.x * blockDim.x) {
        values[i] += what + (unsigned int)i;
    }
}

static unsigned int *managed(size_t nr)
{
    unsigned int *values = nullptr;
    DO(cudaMallocManaged(&values, nr * sizeof(*values)));
    return values;
}

static unsigned long long sum(const unsigned int *values, size_t nr)
{
    unsigned long long all = 0;
    for (size_t i = 0; i < nr; i++) {
        all += values[i];
    }
    return all;
}

static void add_and_wait(unsigned int *values, size_t nr, unsigned int what)
{
    LAUNCH(add<<<32, 128>>>(values, nr, what));
    DO(cudaDeviceSynchronize());
}

/* Ends the capture, which copies `values` to `host`, and launches it three times, each with what `before` does ahead.
 */
template <class Before>
static void launch_captured(cudaStream_t stream, unsigned int *values, const std::vector<unsigned int> &host,
                            const Before &before)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    DO(cudaStreamEndCapture(stream, &graph));
    DO(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        before(round);
        values[round] += 100;
        DO(cudaGraphLaunch(exec, stream));
        DO(cudaStreamSynchronize(stream));
        say_number("on the host", sum(host.data(), host.size()));
        say_number("managed", sum(values, NR));
    }
    DO(cudaGraphExecDestroy(exec));
    DO(cudaGraphDestroy(graph));
}

#endif
