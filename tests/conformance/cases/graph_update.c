/* Updates of executable graphs, over and over: what goes well, and what does not after it went well often. */
#include "case.h"

enum { NR = 1024, NR_STEPS = 40 };

struct step {
    CUdeviceptr out;
    unsigned int value, nr_words;
    void *parameters[3];
    CUDA_KERNEL_NODE_PARAMS kernel;
};

static void step_make(struct step *step, CUdeviceptr out, unsigned int value)
{
    *step = (struct step){.out = out, .value = value, .nr_words = NR};
    step->parameters[0] = &step->out;
    step->parameters[1] = &step->value;
    step->parameters[2] = &step->nr_words;
    step->kernel = (CUDA_KERNEL_NODE_PARAMS){.func = function_of("fill"),
                                             .gridDimX = NR / 128,
                                             .gridDimY = 1,
                                             .gridDimZ = 1,
                                             .blockDimX = 128,
                                             .blockDimY = 1,
                                             .blockDimZ = 1,
                                             .kernelParams = step->parameters};
}

static CUDA_MEMCPY3D copying(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS setting(CUdeviceptr to, unsigned int value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .elementSize = 1, .value = value, .width = 100, .height = 1};
}

static void count(void *calls)
{
    ++*(int *)calls;
}

/* A kernel, a copy of what it wrote, a set, a host function, and a child graph with a set, one after the other. */
struct graph {
    CUcontext context;
    CUgraph graph, child;
    CUgraphExec executable;
    CUgraphNode kernel, copy, set, host, inner;
};

static struct graph graph_make(CUdeviceptr memory, CUdeviceptr copied, int *calls)
{
    struct graph made = {0};
    struct step step;
    CUDA_MEMCPY3D copy = copying(copied, memory, NR);
    CUDA_MEMSET_NODE_PARAMS set = setting(memory, 1);
    CUDA_HOST_NODE_PARAMS host = {.fn = count, .userData = calls};
    CUgraphNode inside;

    step_make(&step, memory, 1);
    MUST(cuCtxGetCurrent, &made.context);
    MUST(cuGraphCreate, &made.graph, 0);
    MUST(cuGraphCreate, &made.child, 0);
    MUST(cuGraphAddMemsetNode, &inside, made.child, NULL, 0, &set, made.context);
    MUST(cuGraphAddKernelNode, &made.kernel, made.graph, NULL, 0, &step.kernel);
    MUST(cuGraphAddMemcpyNode, &made.copy, made.graph, &made.kernel, 1, &copy, made.context);
    MUST(cuGraphAddMemsetNode, &made.set, made.graph, &made.copy, 1, &set, made.context);
    MUST(cuGraphAddHostNode, &made.host, made.graph, &made.set, 1, &host);
    MUST(cuGraphAddChildGraphNode, &made.inner, made.graph, &made.host, 1, made.child);
    MUST(cuGraphInstantiate, &made.executable, made.graph, 0);
    return made;
}

CASE(graph_updated_over_and_over)
{
    CUdeviceptr memory = device_bytes(2 * NR * 4, 0), copied = device_bytes(NR_STEPS * NR, 1);
    int calls[2] = {0};
    struct graph made = graph_make(memory, copied, calls);
    struct step step;
    CUgraph other;

    MUST(cuGraphClone, &other, made.child);
    for (unsigned int i = 0; i < NR_STEPS; i++) {
        CUDA_MEMCPY3D copy = copying(copied + i * NR, memory + (i & 1) * NR * 4, NR);
        CUDA_MEMSET_NODE_PARAMS set = setting(copied + i * NR, i);
        CUDA_HOST_NODE_PARAMS host = {.fn = count, .userData = &calls[i & 1]};

        step_make(&step, memory + (i & 1) * NR * 4, i);
        MUST(cuGraphExecKernelNodeSetParams, made.executable, made.kernel, &step.kernel);
        MUST(cuGraphExecMemcpyNodeSetParams, made.executable, made.copy, &copy, made.context);
        MUST(cuGraphExecMemsetNodeSetParams, made.executable, made.set, &set, made.context);
        MUST(cuGraphExecHostNodeSetParams, made.executable, made.host, &host);
        MUST(cuGraphExecChildGraphNodeSetParams, made.executable, made.inner, i & 1 ? made.child : other);
        MUST(cuGraphNodeSetEnabled, made.executable, made.set, i % 3 != 0);
        MUST(cuGraphLaunch, made.executable, NULL);
    }
    DO(cuStreamSynchronize, NULL);
    say_number("calls of one", calls[0]);
    say_number("calls of the other", calls[1]);
    say_device_bytes("filled", memory, 2 * NR * 4);
    say_device_bytes("copied", copied, NR_STEPS * NR);
}

CASE(graph_updates_that_do_not_fit)
{
    CUdeviceptr memory = device_bytes(2 * NR * 4, 0), copied = device_bytes(NR * 4, 1);
    int calls = 0;
    struct graph made = graph_make(memory, copied, &calls);
    struct step step;
    CUgraphNode more;
    CUgraph other = NULL;

    step_make(&step, memory, 5);
    for (int i = 0; i < 3; i++) {
        DO(cuGraphExecKernelNodeSetParams, made.executable, made.kernel, &step.kernel);
    }
    step.kernel.blockDimX = 4096;
    DO(cuGraphExecKernelNodeSetParams, made.executable, made.kernel, &step.kernel);
    step.kernel.blockDimX = 128;
    step.kernel.gridDimY = 0;
    DO(cuGraphExecKernelNodeSetParams, made.executable, made.kernel, &step.kernel);
    step.kernel.gridDimY = 1;
    step.kernel.gridDimX = 1;
    DO(cuGraphExecKernelNodeSetParams, made.executable, made.kernel, &step.kernel);
    DO(cuGraphExecKernelNodeSetParams, made.executable, made.set, &step.kernel);
    DO(cuGraphLaunch, made.executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_device_bytes("filled", memory, 2 * NR * 4);
    DO(cuGraphExecChildGraphNodeSetParams, made.executable, made.inner, made.child);
    MUST(cuGraphAddEmptyNode, &more, made.child, NULL, 0);
    DO(cuGraphExecChildGraphNodeSetParams, made.executable, made.inner, made.child);
    MUST(cuGraphDestroyNode, more);
    DO(cuGraphExecChildGraphNodeSetParams, made.executable, made.inner, made.child);
    MUST(cuGraphCreate, &other, 0);
    DO(cuGraphExecChildGraphNodeSetParams, made.executable, made.inner, other);
    DO(cuGraphNodeSetEnabled, made.executable, made.kernel, 0);
    DO(cuGraphNodeSetEnabled, made.executable, made.host, 0);
    DO(cuGraphNodeSetEnabled, made.executable, more = made.set, 0);
    DO(cuGraphLaunch, made.executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_number("calls", calls);
}

CASE(graph_updates_of_what_is_gone)
{
    CUdeviceptr memory = device_bytes(2 * NR * 4, 0), copied = device_bytes(NR * 4, 1);
    int calls = 0;
    struct graph made = graph_make(memory, copied, &calls), another = graph_make(memory, copied, &calls);
    struct step step;

    step_make(&step, memory, 5);
    DO(cuGraphExecKernelNodeSetParams, made.executable, made.kernel, &step.kernel);
    DO(cuGraphExecKernelNodeSetParams, made.executable, another.kernel, &step.kernel);
    DO(cuGraphExecKernelNodeSetParams, another.executable, another.kernel, &step.kernel);
    DO(cuGraphNodeSetEnabled, another.executable, another.kernel, 1);
    DO(cuGraphExecDestroy, another.executable);
    ROW("a destroyed graph", cuGraphExecKernelNodeSetParams, another.executable, another.kernel, &step.kernel);
    ROW("a destroyed graph", cuGraphNodeSetEnabled, another.executable, another.kernel, 1);
    ROW("no node", cuGraphExecKernelNodeSetParams, made.executable, NULL, &step.kernel);
    ROW("no parameters", cuGraphExecKernelNodeSetParams, made.executable, made.kernel, NULL);
    ROW("no node", cuGraphNodeSetEnabled, made.executable, NULL, 1);
    ROW("no graph", cuGraphNodeSetEnabled, NULL, made.kernel, 1);
}
