/* Graphs that kernels launch: as the tail of the graph that runs, beside it, and themselves again. */
#include "runtime.cuh"

enum { NR = 32 };

/* Each kernel writes its number at the next place, so that the order is seen. */
static __global__ void note(unsigned int *log, unsigned int number)
{
    log[1 + atomicAdd(log, 1)] = number;
}

static __global__ void launch_graph(cudaGraphExec_t graph, unsigned long long how, int *error)
{
    *error = cudaGraphLaunch(graph, (cudaStream_t)how);
}

static __global__ void again(unsigned int *left, int *error)
{
    if (--*left != 0) {
        *error = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
    }
}

static __global__ void who_am_i(unsigned long long *told)
{
    *told = (unsigned long long)cudaGetCurrentGraphExec();
}

static unsigned long long tail()
{
    return (unsigned long long)cudaStreamGraphTailLaunch;
}
static unsigned long long child()
{
    return (unsigned long long)cudaStreamGraphFireAndForget;
}
static unsigned long long sibling()
{
    return (unsigned long long)cudaStreamGraphFireAndForgetAsSibling;
}

struct recording {
    cudaStream_t stream;
    recording()
    {
        cudaStreamCreate(&stream);
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    }
    cudaGraph_t end()
    {
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(stream, &graph);
        return graph;
    }
};

template <typename T> static T *zeros(size_t count)
{
    T *memory = nullptr;
    cudaMalloc(&memory, count * sizeof(T));
    cudaMemset(memory, 0, count * sizeof(T));
    return memory;
}

template <typename T> static T fetch(const T *memory)
{
    T value{};
    cudaMemcpy(&value, memory, sizeof(value), cudaMemcpyDefault);
    return value;
}

static void say_log(unsigned int *log)
{
    unsigned int noted[1 + NR] = {};
    cudaMemcpy(noted, log, sizeof(noted), cudaMemcpyDefault);
    say_number("notes", noted[0]);
    for (unsigned int i = 0; i < noted[0] && i < NR; i++) {
        say_number("note", noted[1 + i]);
    }
}

/* A graph that kernels may launch, and that is on the device already: it notes its number. */
static cudaGraphExec_t noting(unsigned int *log, unsigned int number)
{
    recording record;
    cudaGraphExec_t made = nullptr;
    note<<<1, 1, 0, record.stream>>>(log, number);
    DO(cudaGraphInstantiate(&made, record.end(), cudaGraphInstantiateFlagDeviceLaunch));
    DO(cudaGraphUpload(made, record.stream));
    cudaStreamSynchronize(record.stream);
    return made;
}

static void run(cudaGraphExec_t graph)
{
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    DO(cudaGraphLaunch(graph, stream));
    DO(cudaStreamSynchronize(stream));
}

CASE(runtime_graph_device_tail)
{
    unsigned int *log = zeros<unsigned int>(1 + NR);
    int *error = zeros<int>(1);
    cudaGraphExec_t one = noting(log, 1), two = noting(log, 2), first = nullptr;
    recording record;
    note<<<1, 1, 0, record.stream>>>(log, 10);
    launch_graph<<<1, 1, 0, record.stream>>>(one, tail(), error);
    launch_graph<<<1, 1, 0, record.stream>>>(two, tail(), error);
    note<<<1, 1, 0, record.stream>>>(log, 11);
    DO(cudaGraphInstantiate(&first, record.end(), 0));
    run(first);
    say_number("error in the kernel", fetch(error));
    say_log(log);
    run(first);
    say_log(log);
    run(one);
    say_log(log);
    DO(cudaGraphExecDestroy(first));
    DO(cudaGraphExecDestroy(one));
    DO(cudaGraphExecDestroy(two));
}

/* Work that follows in the stream begins when all that was launched has ended. */
CASE(runtime_graph_device_stream_order)
{
    unsigned int *log = zeros<unsigned int>(1 + NR);
    int *error = zeros<int>(1);
    cudaGraphExec_t one = noting(log, 1), first = nullptr;
    cudaEvent_t event;
    cudaStream_t stream, other;
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaEventCreate(&event);
    recording record;
    launch_graph<<<1, 1, 0, record.stream>>>(one, tail(), error);
    DO(cudaGraphInstantiate(&first, record.end(), 0));
    DO(cudaGraphLaunch(first, stream));
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(other, event, 0);
    LAUNCH(note<<<1, 1, 0, other>>>(log, 2));
    DO(cudaDeviceSynchronize());
    say_log(log);
}

CASE(runtime_graph_device_fire_and_forget)
{
    unsigned int *log = zeros<unsigned int>(1 + NR);
    int *errors = zeros<int>(3);
    cudaGraphExec_t one = noting(log, 1), two = noting(log, 2), three = noting(log, 3), first = nullptr;
    recording record;
    launch_graph<<<1, 1, 0, record.stream>>>(three, tail(), errors);
    launch_graph<<<1, 1, 0, record.stream>>>(one, child(), errors + 1);
    DO(cudaGraphInstantiate(&first, record.end(), 0));
    run(first);
    say_log(log);
    recording beside;
    launch_graph<<<1, 1, 0, beside.stream>>>(two, sibling(), errors + 2);
    DO(cudaGraphInstantiate(&first, beside.end(), 0));
    run(first);
    say_log(log);
    for (int i = 0; i < 3; i++) {
        say_number("error in the kernel", fetch(errors + i));
    }
}

CASE(runtime_graph_device_again)
{
    unsigned int *left = zeros<unsigned int>(1), *log = zeros<unsigned int>(1 + NR), nr = 20;
    int *error = zeros<int>(1);
    cudaGraphExec_t graph = nullptr;
    recording record;
    note<<<1, 1, 0, record.stream>>>(log, 5);
    again<<<1, 1, 0, record.stream>>>(left, error);
    DO(cudaGraphInstantiate(&graph, record.end(), cudaGraphInstantiateFlagDeviceLaunch));
    for (int i = 0; i < 2; i++) {
        cudaMemcpy(left, &nr, sizeof(nr), cudaMemcpyDefault);
        run(graph);
        say_number("left", fetch(left));
        say_number("error in the kernel", fetch(error));
        say_number("notes", fetch(log));
    }
}

CASE(runtime_graph_device_current)
{
    unsigned long long *told = zeros<unsigned long long>(1), flags = 0;
    cudaGraphExec_t on_device = nullptr, on_host = nullptr;
    recording record;
    who_am_i<<<1, 1, 0, record.stream>>>(told);
    cudaGraph_t graph = record.end();
    DO(cudaGraphInstantiate(&on_device, graph, cudaGraphInstantiateFlagDeviceLaunch));
    DO(cudaGraphInstantiate(&on_host, graph, 0));
    DO(cudaGraphExecGetFlags(on_device, &flags));
    say_number("flags", (long long)flags);
    run(on_device);
    say_number("a kernel is told its graph", fetch(told) == (unsigned long long)on_device);
    run(on_host);
    say_number("and of one that it may not launch", (long long)fetch(told));
    LAUNCH(who_am_i<<<1, 1>>>(told));
    say_number("and outside of any graph", (long long)fetch(told));
}

static void nothing(void *) {}

CASE(runtime_graph_device_refused)
{
    unsigned int *log = zeros<unsigned int>(1 + NR);
    cudaGraphExec_t made = nullptr;
    cudaGraphInstantiateParams params = {};
    recording with_host;
    note<<<1, 1, 0, with_host.stream>>>(log, 1);
    cudaLaunchHostFunc(with_host.stream, nothing, nullptr);
    cudaGraph_t graph = with_host.end();
    DO(cudaGraphInstantiate(&made, graph, cudaGraphInstantiateFlagDeviceLaunch));
    params.flags = cudaGraphInstantiateFlagDeviceLaunch;
    DO(cudaGraphInstantiateWithParams(&made, graph, &params));
    say_number("result", params.result_out);
    recording plain;
    note<<<1, 1, 0, plain.stream>>>(log, 1);
    graph = plain.end();
    DO(cudaGraphInstantiate(&made, graph,
                            cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagAutoFreeOnLaunch));
    DO(cudaGraphInstantiate(&made, graph, cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUpload));
}
