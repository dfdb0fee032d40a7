/*
 * A graph built node by node: kernels, copies, sets, events, a child graph, edges added and removed; parameters read
 * back, changed in the graph and in what was instantiated, nodes switched off; an update that does not fit; user
 * objects.
 */
#include <algorithm>

#include "check.h"

struct Pair {
    int factor;
    char tag;
};

__global__ void linear(int *data, int nr, Pair pair, int offset)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        data[i] = data[i] * pair.factor + offset;
    }
}

static const int nr = 1024;
static const size_t bytes = nr * sizeof(int);
static int *device, *host;
static cudaStream_t stream;

static cudaKernelNodeParams kernel_params(void **arguments, int nr_blocks)
{
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void *>(linear);
    params.gridDim = dim3(nr_blocks);
    params.blockDim = dim3(256);
    params.kernelParams = arguments;
    return params;
}

/* Launches and says what the first and last element became. */
static bool run(cudaGraphExec_t exec, const char *what, int first, int last)
{
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("%s: %d ... %d\n", what, host[0], host[nr - 1]);
    return host[0] == first && host[nr - 1] == last;
}

static int nr_destroyed;

static void destroyed(void *)
{
    nr_destroyed++;
}

static bool user_objects(cudaGraph_t graph)
{
    cudaUserObject_t object;
    cudaGraph_t copy;
    cudaGraphExec_t exec;
    CHECK(cudaUserObjectCreate(&object, &nr_destroyed, destroyed, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphClone(&copy, graph));
    CHECK(cudaGraphRetainUserObject(copy, object, 1, cudaGraphUserObjectMove));
    CHECK(cudaGraphInstantiate(&exec, copy, 0));
    CHECK(cudaGraphDestroy(copy));
    bool is_kept = nr_destroyed == 0;
    CHECK(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 10000000 && nr_destroyed == 0; i++) {
        CHECK(cudaStreamSynchronize(stream));
    }
    std::printf("a user object was kept: %d, then destroyed: %d\n", is_kept, nr_destroyed);
    return is_kept && nr_destroyed == 1;
}

int main()
{
    bool is_right = true;
    int size = nr, offset = 5;
    Pair pair = {3, 'x'};
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&host, bytes));
    CHECK(cudaStreamCreate(&stream));
    void *arguments[] = {&device, &size, &pair, &offset};
    cudaKernelNodeParams kernel = kernel_params(arguments, nr / 256);

    cudaGraph_t graph, child;
    cudaGraphNode_t set, first, second, copy, within, empty;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams zero = {};
    zero.dst = device;
    zero.elementSize = 4;
    zero.width = nr;
    zero.height = 1;
    zero.value = 7;
    CHECK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &zero));
    CHECK(cudaGraphAddKernelNode(&first, graph, &set, 1, &kernel)); /* 7 * 3 + 5 = 26 */
    CHECK(cudaGraphCreate(&child, 0));
    pair.factor = 2;
    offset = 1;
    CHECK(cudaGraphAddKernelNode(&within, child, nullptr, 0, &kernel)); /* 26 * 2 + 1 = 53 */
    CHECK(cudaGraphAddChildGraphNode(&second, graph, &first, 1, child));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &second, 1, host, device, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
    CHECK(cudaGraphDestroy(child));

    /* What was passed is the node's own. */
    cudaKernelNodeParams read = {};
    CHECK(cudaGraphKernelNodeGetParams(first, &read));
    std::printf("%d of %d blocks of %d, nr %d, factor %d%c, offset %d, the kernel: %d\n", 1, read.gridDim.x,
                read.blockDim.x, *static_cast<int *>(read.kernelParams[1]),
                static_cast<Pair *>(read.kernelParams[2])->factor, static_cast<Pair *>(read.kernelParams[2])->tag,
                *static_cast<int *>(read.kernelParams[3]), read.func == kernel.func);
    cudaMemsetParams read_set = {};
    CHECK(cudaGraphMemsetNodeGetParams(set, &read_set));
    std::printf("set %u x %zu to %u, where: %d\n", read_set.elementSize, read_set.width, read_set.value,
                read_set.dst == device);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    is_right &= run(exec, "as built", 53, 53);

    /* The instantiated graph alone changes. */
    pair.factor = 10;
    offset = 0;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &kernel));
    is_right &= run(exec, "kernel changed", 141, 141);
    zero.value = 1;
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, set, &zero));
    is_right &= run(exec, "set changed", 21, 21);
    unsigned int is_enabled = 2;
    CHECK(cudaGraphNodeSetEnabled(exec, first, 0));
    CHECK(cudaGraphNodeGetEnabled(exec, first, &is_enabled));
    std::printf("enabled: %u\n", is_enabled);
    is_right &= run(exec, "kernel off", 3, 3);
    CHECK(cudaGraphNodeSetEnabled(exec, first, 1));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copy, host + nr / 2, device, bytes / 2, cudaMemcpyDeviceToHost));
    std::fill(host, host + nr, -1);
    is_right &= run(exec, "half copied", -1, 21);

    /* The graph changes: it goes into what is instantiated later, or by an update. */
    pair.factor = 100;
    CHECK(cudaGraphKernelNodeSetParams(first, &kernel));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    is_right &= run(exec, "updated from the graph", 1401, 1401);

    /* Edges: an empty node between, then one that makes a circle. */
    CHECK(cudaGraphAddDependencies(graph, &set, &empty, nullptr, 1));
    CHECK(cudaGraphAddDependencies(graph, &empty, &first, nullptr, 1));
    size_t nr_dependencies = 0, nr_dependents = 0;
    CHECK(cudaGraphNodeGetDependencies(first, nullptr, nullptr, &nr_dependencies));
    CHECK(cudaGraphNodeGetDependentNodes(set, nullptr, nullptr, &nr_dependents));
    std::printf("first waits for %zu, %zu wait for the set\n", nr_dependencies, nr_dependents);
    cudaError_t error = cudaGraphExecUpdate(exec, graph, &info);
    std::printf("update with other edges: %s\n", cudaGetErrorName(error));
    cudaGetLastError();
    CHECK(cudaGraphRemoveDependencies(graph, &set, &first, nullptr, 1));
    CHECK(cudaGraphDestroyNode(empty));
    CHECK(cudaGraphAddDependencies(graph, &set, &first, nullptr, 1));
    cudaGraphExec_t again;
    CHECK(cudaGraphInstantiate(&again, graph, 0));
    is_right &= run(again, "built again", 1401, 1401);

    cudaGraph_t clone;
    cudaGraphNode_t twin;
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphNodeFindInClone(&twin, first, clone));
    CHECK(cudaGraphKernelNodeGetParams(twin, &read));
    std::printf("the clone's factor: %d\n", static_cast<Pair *>(read.kernelParams[2])->factor);
    is_right &= user_objects(graph);

    CHECK(cudaGraphDestroyNode(twin));

    CHECK(cudaGraphExecDestroy(again));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(host));
    return verdict(is_right);
}
