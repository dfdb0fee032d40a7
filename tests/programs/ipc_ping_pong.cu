/*
 * Memory and events in two processes, in turn: nobody waits but streams. With an argument it does what a device need
 * not do as FairGV does: "die", a process dies between a record and its end; "fault", its kernel does; "lose", somebody
 * else takes from it what serves it; "forget", one opens events and never destroys them; "full", as many events as
 * there can be; "again", one records in a second stream while the first one is held up (NVIDIA's driver has the second
 * wait for the first).
 */
#include <vector>

#include "two_processes.h"

static const size_t NR = 1 << 16;
static const int NR_ROUNDS = 100, NR_STREAMS = 4, NR_FORGOTTEN = 5000;

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t there, back, again;
};

__global__ void until(volatile int *flag)
{
    while (*flag == 0) {
    }
}

static cudaEvent_t shared_event(cudaIpcEventHandle_t *handle)
{
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaIpcGetEventHandle(handle, event));
    return event;
}

static cudaStream_t new_stream()
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static int *held_flag()
{
    int *flag;
    CHECK(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped));
    *flag = 0;
    return flag;
}

/* Adds in turn with the other process. */
static void play(const Other &other, int *memory, cudaEvent_t mine, cudaEvent_t others, int what, bool is_first)
{
    cudaStream_t stream = new_stream();
    for (int round = 0; round < NR_ROUNDS; round++) {
        if (!is_first || round > 0) {
            other.wait(); /* the other has recorded */
            CHECK(cudaStreamWaitEvent(stream, others));
        }
        add<<<8, 256, 0, stream>>>(memory, NR, what);
        CHECK(cudaEventRecord(mine, stream));
        other.go_on();
    }
    if (is_first) {
        other.wait();
    }
    CHECK(cudaStreamSynchronize(stream));
}

/* Records in one stream after another while the first one is held up: the last one counts, and stays over. */
static void record_again(const Other &other, cudaEvent_t event)
{
    int *flag = held_flag();
    cudaStream_t held = new_stream();
    until<<<1, 1, 0, held>>>(flag);
    CHECK(cudaEventRecord(event, held));
    for (int i = 0; i < NR_STREAMS; i++) {
        cudaStream_t stream = new_stream();
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    std::printf("recorded again elsewhere: %s\n", said(cudaEventQuery(event)));
    other.go_on();
    other.wait();
    *(volatile int *)flag = 1;
    CHECK(cudaStreamSynchronize(held));
    std::printf("and when the first is over: %s\n", said(cudaEventQuery(event)));
    other.go_on();
    other.wait();
}

static void make_many(const Other &other)
{
    cudaIpcEventHandle_t handle;
    for (int i = 0; i < NR_FORGOTTEN; i++) {
        cudaEvent_t event = shared_event(&handle);
        CHECK(cudaEventRecord(event));
        other.tell(handle);
        other.wait();
        CHECK(cudaEventDestroy(event));
    }
}

/* Records what is not over, and never will be. */
static void owe(const Other &other, char how, const Handles &handles, cudaEvent_t event)
{
    int *flag = held_flag();
    until<<<1, 1>>>(flag);
    if (how == 'f') {
        add<<<1, 1>>>(nullptr, 1, 1);
    }
    CHECK(cudaEventRecord(event));
    other.tell(handles);
    other.wait();
    if (how == 'd') {
        die("dies with a record that is not over");
    }
    *(volatile int *)flag = how == 'f';
    std::printf("what it says itself: %d\n", cudaEventSynchronize(event) != cudaSuccess);
    other.wait();
}

static void exporter(const Other &other)
{
    Handles handles;
    int *memory;
    const char mode = other.hear<char>();
    if (mode == 'm') {
        return make_many(other);
    }
    cudaEvent_t there = shared_event(&handles.there), back = shared_event(&handles.back);
    cudaEvent_t again = shared_event(&handles.again);
    CHECK(cudaMalloc(&memory, NR * sizeof(int)));
    CHECK(cudaMemset(memory, 0, NR * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcGetMemHandle(&handles.memory, memory));
    if (mode == 'a') {
        other.tell(handles);
        return record_again(other, again);
    }
    if (mode != 'p') {
        return owe(other, mode, handles, there);
    }
    other.tell(handles);
    play(other, memory, back, there, 10, false);
    other.wait();
    CHECK(cudaEventDestroy(there));
    CHECK(cudaEventDestroy(back));
    std::printf("after all: %s\n", said(cudaDeviceSynchronize()));
}

static cudaEvent_t opened(const cudaIpcEventHandle_t &handle)
{
    cudaEvent_t event;
    CHECK(cudaIpcOpenEventHandle(&event, handle));
    return event;
}

static bool importer(const Other &other)
{
    other.tell('p');
    const Handles handles = other.hear<Handles>();
    int *memory;
    CHECK(cudaIpcOpenMemHandle((void **)&memory, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    cudaEvent_t there = opened(handles.there), back = opened(handles.back);
    play(other, memory, there, back, 1, true);
    std::vector<int> host(NR);
    CHECK(cudaEventSynchronize(back));
    CHECK(cudaMemcpy(host.data(), memory, NR * sizeof(int), cudaMemcpyDeviceToHost));
    bool is_right = true;
    for (int value : host) {
        is_right = is_right && value == NR_ROUNDS * 11;
    }
    std::printf("all values are %d: %d\n", NR_ROUNDS * 11, is_right);
    other.go_on();
    CHECK(cudaEventDestroy(there));
    CHECK(cudaEventDestroy(back));
    CHECK(cudaIpcCloseMemHandle(memory));
    CHECK(cudaDeviceSynchronize());
    std::printf("the other is gone: %d\n", other.is_gone());
    return is_right;
}

static bool see_again(const Other &other)
{
    other.tell('a');
    cudaEvent_t again = opened(other.hear<Handles>().again);
    other.wait();
    std::printf("recorded again elsewhere: %s\n", said(cudaEventQuery(again)));
    CHECK(cudaEventSynchronize(again));
    other.go_on();
    other.wait();
    CHECK(cudaEventSynchronize(again));
    std::printf("and when the first is over: %s\n", said(cudaEventQuery(again)));
    CHECK(cudaEventDestroy(again));
    other.go_on();
    return true;
}

static bool survive(const Other &other, char how)
{
    int *out, value = 0;
    other.tell(how);
    const Handles handles = other.hear<Handles>();
    cudaStream_t stream = new_stream();
    cudaEvent_t event = opened(handles.there), later = opened(handles.back);
    CHECK(cudaMalloc(&out, sizeof(int)));
    CHECK(cudaMemset(out, 0, sizeof(int)));
    std::printf("before it ends: %s\n", said(cudaEventQuery(event)));
    CHECK(cudaStreamWaitEvent(stream, event));
    add<<<1, 1, 0, stream>>>(out, 1, 77);
    CHECK(cudaEventRecord(later, stream));
    std::printf("what waits: %s\n", said(cudaStreamQuery(stream)));
    std::fflush(stdout);
    other.go_on();
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&value, out, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("after it: %s %s %d\n", said(cudaEventQuery(event)), said(cudaEventQuery(later)), value);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    if (how != 'd') {
        other.go_on();
    }
    return value == 77;
}

static bool survive_death(const Other &other)
{
    return survive(other, 'd');
}

static bool survive_fault(const Other &other)
{
    return survive(other, 'f');
}

static bool survive_loss(const Other &other)
{
    return survive(other, 'l');
}

static bool forgetful(const Other &other)
{
    cudaStream_t stream = new_stream();
    cudaEvent_t first = nullptr, last = nullptr;
    other.tell('m');
    for (int i = 0; i < NR_FORGOTTEN; i++) {
        last = opened(other.hear<cudaIpcEventHandle_t>());
        first = first == nullptr ? last : first;
        CHECK(cudaStreamWaitEvent(stream, last));
        other.go_on();
    }
    CHECK(cudaStreamSynchronize(stream));
    std::printf("the other is gone: %d\n", other.is_gone());
    for (cudaEvent_t event : {first, last}) {
        std::printf("its event: %s\n", said(cudaEventQuery(event)));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaEventDestroy(event));
    }
    return true;
}

/* They are left to the end of the program. */
static int fill()
{
    cudaEvent_t event, last = nullptr;
    int nr = 0;
    cudaError_t error = cudaSuccess;
    while (error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
        if (error == cudaSuccess) {
            last = event;
            nr++;
        }
    }
    std::printf("%d events, then %s\n", nr, said(error));
    CHECK(cudaEventDestroy(last));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaEventRecord(event));
    CHECK(cudaEventSynchronize(event));
    return verdict(true);
}

int main(int argc, char **argv)
{
    const std::string mode = argc == 2 ? argv[1] : "";
    if (mode == "full") {
        return fill();
    }
    bool (*first)(const Other &other) = mode == "die"      ? survive_death
                                        : mode == "fault"  ? survive_fault
                                        : mode == "lose"   ? survive_loss
                                        : mode == "forget" ? forgetful
                                        : mode == "again"  ? see_again
                                                           : importer;
    return two_processes(argc, argv, first, exporter);
}
