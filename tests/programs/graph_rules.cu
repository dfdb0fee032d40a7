/*
 * What CUDA forbids beside a capture, the error for it, and what becomes of the capture; in one thread and in two, in
 * each mode.
 */
#include <thread>

#include "check.h"

__global__ void nothing() {}

static cudaStream_t stream, other;
static int *device, *pinned;
static int nr_captures;

static const char *status_of(cudaStream_t of)
{
    cudaStreamCaptureStatus status;
    cudaError_t error = cudaStreamIsCapturing(of, &status);
    if (error != cudaSuccess) {
        return cudaGetErrorName(error);
    }
    return status == cudaStreamCaptureStatusActive        ? "active"
           : status == cudaStreamCaptureStatusInvalidated ? "invalidated"
                                                          : "none";
}

/* Begins a capture, breaks a rule or not, and says what came of it. */
template <typename F> static void attempt(const char *what, cudaStreamCaptureMode mode, F call)
{
    cudaGraph_t graph = nullptr;
    cudaError_t begin = cudaStreamBeginCapture(stream, mode);
    if (begin != cudaSuccess) {
        std::printf("%s: begin: %s\n", what, cudaGetErrorName(begin));
    }
    nothing<<<1, 1, 0, stream>>>();
    cudaError_t error = call();
    const char *status = status_of(stream);
    cudaError_t end = cudaStreamEndCapture(stream, &graph);
    std::printf("%s: %s, %s, end: %s, %s\n", what, cudaGetErrorName(error), status, cudaGetErrorName(end),
                graph ? "a graph" : "no graph");
    std::printf("    then %s and %s\n", status_of(stream), status_of(other));
    if (graph) {
        CHECK(cudaGraphDestroy(graph));
    }
    cudaGetLastError();
    nr_captures++;
}

template <typename F> static cudaError_t in_thread(F call)
{
    cudaError_t error = cudaSuccess;
    std::thread([&] { error = call(); }).join();
    return error;
}

static cudaError_t allocate()
{
    int *more = nullptr;
    cudaError_t error = cudaMalloc(&more, 4096);
    if (error == cudaSuccess) {
        cudaFree(more);
    }
    return error;
}

static cudaError_t allocate_in(cudaStreamCaptureMode mode)
{
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t error = allocate();
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    return error;
}

/* What a call gave, and what it left of the capture. */
static void say(const char *what, cudaError_t error)
{
    std::printf("%s: %s, %s\n", what, cudaGetErrorName(error), status_of(stream));
    cudaGetLastError();
}

static void begin(const char *what, cudaStreamCaptureMode mode)
{
    std::printf("begin %s: %s\n", what, cudaGetErrorName(cudaStreamBeginCapture(stream, mode)));
}

static void end(const char *what)
{
    cudaGraph_t graph = nullptr;
    std::printf("end %s: %s\n", what, cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
    if (graph) {
        CHECK(cudaGraphDestroy(graph));
    }
    cudaGetLastError();
}

static void misuse()
{
    cudaGraph_t graph = nullptr;
    std::printf("end without begin: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
    std::printf("of the legacy stream: %s\n",
                cudaGetErrorName(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed)));
    begin("global", cudaStreamCaptureModeGlobal);
    say("again", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    end("global");
    begin("global", cudaStreamCaptureModeGlobal);
    say("by another thread", in_thread([&] { return cudaStreamEndCapture(stream, &graph); }));
    end("after that");
    begin("relaxed", cudaStreamCaptureModeRelaxed);
    say("a relaxed one by another thread", in_thread([&] { return cudaStreamEndCapture(stream, &graph); }));
    CHECK(cudaGraphDestroy(graph));
}

int main()
{
    cudaEvent_t event, outside;
    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaMallocHost(&pinned, 4096));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
    nothing<<<1, 1, 0, other>>>();
    CHECK(cudaEventRecord(outside, other));
    CHECK(cudaDeviceSynchronize());

    const cudaStreamCaptureMode global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                                relaxed = cudaStreamCaptureModeRelaxed;
    attempt("nothing forbidden", global, [] { return cudaSuccess; });
    attempt("allocation", global, allocate);
    attempt("allocation, relaxed capture", relaxed, allocate);
    attempt("allocation, relaxed thread", global, [=] { return allocate_in(relaxed); });
    attempt("allocation in another thread", global, [] { return in_thread(allocate); });
    attempt("allocation in another thread, local capture", local, [] { return in_thread(allocate); });
    attempt("allocation in another thread that is local", global,
            [=] { return in_thread([=] { return allocate_in(local); }); });
    attempt("allocation, local capture", local, allocate);
    attempt("free of host memory", global, [] { return cudaFreeHost(pinned); });
    attempt("synchronising the stream", relaxed, [] { return cudaStreamSynchronize(stream); });
    attempt("asking the stream", relaxed, [] { return cudaStreamQuery(stream); });
    attempt("synchronising the device", relaxed, [] { return cudaDeviceSynchronize(); });
    attempt("synchronising a captured event", relaxed, [&] {
        CHECK(cudaEventRecord(event, stream));
        return cudaEventSynchronize(event);
    });
    attempt("a launch in the legacy stream", relaxed, [] {
        nothing<<<1, 1>>>();
        return cudaGetLastError();
    });
    attempt("a copy in the legacy stream", relaxed, [] { return cudaMemcpy(pinned, device, 64, cudaMemcpyDefault); });
    attempt("waiting for work outside", relaxed, [&] { return cudaStreamWaitEvent(stream, outside, 0); });
    attempt("a stream that does not come back", relaxed, [&] {
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamWaitEvent(other, event, 0));
        nothing<<<1, 1, 0, other>>>();
        return cudaGetLastError();
    });
    attempt("ending in the wrong stream", relaxed, [&] {
        cudaGraph_t graph;
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamWaitEvent(other, event, 0));
        return cudaStreamEndCapture(other, &graph);
    });
    misuse();
    nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    return verdict(nr_captures == 18);
}
