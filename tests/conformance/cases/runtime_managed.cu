/* Managed memory: what the CPU and the device write in turn, in all the ways that either reaches it. */
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime.cuh"

static const size_t NR = 300000;

static __global__ void add(unsigned int *values, size_t nr, unsigned int what)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < nr; i += gridDim.x * blockDim.x) {
        values[i] += what + (unsigned int)i;
    }
}

static __global__ void put(unsigned int *to, unsigned int value)
{
    *to = value;
}

static __global__ void linger(long long cycles)
{
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

__managed__ unsigned int one_variable = 5, another_variable = 6;
__managed__ unsigned char odd_variable[70001] = {1, 2, 3};
__managed__ unsigned int large_variable[NR];

static __global__ void use_variables(unsigned int what)
{
    one_variable += what;
    odd_variable[70000] += 3;
    for (size_t i = 0; i < NR; i++) {
        large_variable[i] += what;
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

CASE(managed_in_turn)
{
    unsigned int *values = managed(NR);
    say_number("zero at first", sum(values, NR));
    add_and_wait(values, NR, 1);
    say_number("read", sum(values, NR));
    values[7] = 1000;
    values[NR - 1] = 2000;
    add_and_wait(values, NR, 2);
    add_and_wait(values, NR, 3);
    say_number("seventh", values[7]);
    say_number("last", values[NR - 1]);
    say_number("all", sum(values, NR));
    memset(values, 0xff, NR * 2);
    add_and_wait(values, NR, 4);
    say_number("half set", sum(values, NR));
    for (size_t i = NR; i-- > 0;) {
        values[i] ^= 5;
    }
    add_and_wait(values, NR, 6);
    say_number("backwards", sum(values, NR));
    DO(cudaFree(values));
}

CASE(managed_untouched_by_the_cpu)
{
    unsigned int *values = managed(NR), *other = managed(NR);
    add_and_wait(values, NR, 1);
    add_and_wait(other, NR, 2);
    LAUNCH(add<<<32, 128>>>(values, NR, 3));
    LAUNCH(add<<<32, 128>>>(other, NR, 4));
    DO(cudaDeviceSynchronize());
    say_number("first", sum(values, NR));
    say_number("other", sum(other, NR));
}

CASE(managed_small)
{
    unsigned int *one = managed(1), *two = managed(100), *three = managed(20000);
    *one = 5;
    two[99] = 6;
    three[19999] = 7;
    add_and_wait(two, 100, 1);
    say_number("one", *one);
    say_number("two", two[99]);
    LAUNCH(put<<<1, 1>>>(one, 77));
    DO(cudaDeviceSynchronize());
    say_number("one is put", *one);
    say_number("two stays", two[99]);
    add_and_wait(three, 20000, 1);
    say_number("three", sum(three, 20000));
    DO(cudaFree(two));
    unsigned int *again = managed(100);
    say_number("one stays", *one);
    for (int i = 0; i < 100; i++) {
        again[i] = 9 * i;
    }
    add_and_wait(again, 100, 1);
    say_number("again", sum(again, 100));
    DO(cudaFree(one));
    DO(cudaFree(one));
    DO(cudaFree(three));
    DO(cudaFree(again + 1));
    DO(cudaFree(again));
}

CASE(managed_copies)
{
    unsigned int *values = managed(NR), *device = device_words(NR, 10);
    std::vector<unsigned int> host(NR, 3);
    for (size_t i = 0; i < NR; i++) {
        values[i] = (unsigned int)i;
    }
    DO(cudaMemcpy(host.data(), values, NR * 4, cudaMemcpyDeviceToHost));
    say_number("to the host", sum(host.data(), NR));
    values[3] = 1;
    DO(cudaMemcpy(host.data(), values, 64, cudaMemcpyDefault));
    say_bytes("the first of them", host.data(), 64);
    DO(cudaMemcpy(values + 100, host.data(), 400, cudaMemcpyDefault));
    values[50] = 8;
    DO(cudaMemcpy(values + 1000, device, 4000, cudaMemcpyDefault));
    say_number("from both", sum(values, NR));
    values[2] = 4;
    DO(cudaMemcpy(device, values, 4000, cudaMemcpyDeviceToDevice));
    say_device_bytes("on the device", device, 4000);
    DO(cudaMemset(values + 20, 1, 40));
    say_bytes("set", values, 200);
    DO(cudaMemcpy2D(values, 400, host.data(), 200, 100, 30, cudaMemcpyHostToDevice));
    values[1] = 2;
    DO(cudaMemcpy2D(host.data(), 200, values, 400, 100, 30, cudaMemcpyDeviceToHost));
    say_number("rows", sum(values, 12000) + sum(host.data(), 1500));
    unsigned int *other = managed(NR);
    other[0] = 6;
    DO(cudaMemcpy(other + 1, values, 4000, cudaMemcpyDefault));
    say_number("between two", sum(other, NR));
    DO(cudaMemcpyAsync(values, host.data(), 4000, cudaMemcpyHostToDevice));
    DO(cudaMemcpyAsync(other, values, 4000, cudaMemcpyDefault));
    DO(cudaDeviceSynchronize());
    say_number("one after the other", sum(other, NR));
}

struct part {
    unsigned int *memory;
    size_t free_bytes, bytes;
    float ms;
    int device, attribute;
    unsigned int value;
    cudaPointerAttributes kind;
};

/* What calls are given, and what they give, may itself be managed memory that the device has. */
CASE(managed_arguments)
{
    part *parts = nullptr;
    DO(cudaMallocManaged(&parts, 1000 * sizeof(part)));
    for (int round = 0; round < 3; round++) {
        part *own = &parts[round * 300];
        own->value = 40 + round;
        LAUNCH(put<<<1, 1>>>(&parts[999].value, 5));
        DO(cudaMallocManaged(&own->memory, 4000));
        LAUNCH(put<<<1, 1>>>(&parts[999].value, 6));
        DO(cudaGetDevice(&own->device));
        void *parameters[] = {&own->memory, &own->value};
        DO(cudaLaunchKernel((const void *)put, dim3(1), dim3(1), parameters, 0, nullptr));
        DO(cudaDeviceGetAttribute(&own->attribute, cudaDevAttrWarpSize, 0));
        DO(cudaDeviceSynchronize());
        DO(cudaPointerGetAttributes(&own->kind, own->memory));
        say_number("value", *own->memory);
        say_number("warp", own->attribute);
        say_number("device", own->device);
        say_number("kind", own->kind.type);
        say_number("host pointer", own->kind.hostPointer == own->memory);
        say_number("device pointer", own->kind.devicePointer == own->memory);
    }
    say_number("last", parts[999].value);
}

struct node {
    unsigned int value;
    node *next;
};

static __global__ void walk(node *first)
{
    for (node *at = first; at; at = at->next) {
        at->value *= 2;
    }
}

CASE(managed_list)
{
    node *first = nullptr;
    for (int i = 0; i < 200; i++) {
        node *made = nullptr;
        if (cudaMallocManaged(&made, sizeof(*made)) != cudaSuccess) {
            say_number("failed at", i);
            return;
        }
        made->value = i;
        made->next = first;
        first = made;
    }
    LAUNCH(walk<<<1, 1>>>(first));
    DO(cudaDeviceSynchronize());
    unsigned long long all = 0;
    for (const node *at = first; at; at = at->next) {
        all += at->value;
    }
    say_number("sum", all);
}

static void on_host(void *data)
{
    unsigned int *values = static_cast<unsigned int *>(data);
    for (size_t i = 0; i < NR; i += 1000) {
        values[i] += 7;
    }
}

CASE(managed_host_function)
{
    cudaStream_t stream;
    unsigned int *values = managed(NR);
    DO(cudaStreamCreate(&stream));
    for (int round = 0; round < 3; round++) {
        LAUNCH(add<<<32, 128, 0, stream>>>(values, NR, 1));
        DO(cudaLaunchHostFunc(stream, on_host, values));
        LAUNCH(add<<<32, 128, 0, stream>>>(values, NR, 2));
    }
    const volatile unsigned int *touched_before_the_end = values;
    (void)*touched_before_the_end;
    DO(cudaStreamSynchronize(stream));
    say_number("all", sum(values, NR));
    DO(cudaStreamDestroy(stream));
}

CASE(managed_graph)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned int *values = managed(NR);
    std::vector<unsigned int> host(NR);
    DO(cudaStreamCreate(&stream));
    DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    values[5] = 50;
    LAUNCH(add<<<32, 128, 0, stream>>>(values, NR, 1));
    DO(cudaMemcpyAsync(host.data(), values, NR * 4, cudaMemcpyDeviceToHost, stream));
    values[6] = 60;
    DO(cudaStreamEndCapture(stream, &graph));
    DO(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        values[round] += 100;
        DO(cudaGraphLaunch(exec, stream));
        DO(cudaStreamSynchronize(stream));
        say_number("on the host", sum(host.data(), NR));
        say_number("managed", sum(values, NR));
    }
    DO(cudaGraphExecDestroy(exec));
    DO(cudaGraphDestroy(graph));
    DO(cudaStreamDestroy(stream));
}

CASE(managed_beside_a_kernel)
{
    unsigned int *values = managed(NR), *other = managed(NR);
    add_and_wait(values, NR, 1);
    add_and_wait(other, NR, 1);
    LAUNCH(linger<<<1, 1>>>(20000000));
    for (size_t i = 0; i < NR; i++) {
        other[i] += 2;
    }
    LAUNCH(add<<<32, 128>>>(values, NR, 3));
    for (size_t i = 0; i < NR; i++) {
        other[i] += 4;
    }
    DO(cudaDeviceSynchronize());
    say_number("values", sum(values, NR));
    add_and_wait(other, NR, 5);
    say_number("other", sum(other, NR));
}

CASE(managed_threads)
{
    static const int NR_THREADS = 8;
    unsigned int *values = managed(NR_THREADS * NR);
    std::vector<unsigned long long> sums(NR_THREADS);
    for (int round = 0; round < 3; round++) {
        add_and_wait(values, NR_THREADS * NR, round);
        std::vector<std::thread> threads;
        for (int i = 0; i < NR_THREADS; i++) {
            threads.emplace_back([&, i] {
                unsigned int *own = values + i * NR;
                sums[i] = sum(own, NR);
                for (size_t j = 0; j < NR; j += 3) {
                    own[j] += i;
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        unsigned long long all = 0;
        for (unsigned long long each : sums) {
            all += each;
        }
        say_number("sum", all);
    }
    add_and_wait(values, NR_THREADS * NR, 9);
    say_number("at last", sum(values, NR_THREADS * NR));
}

/* Each thread has work and memory of its own, in one process, with nothing between them. */
CASE(managed_threads_with_work)
{
    static const int NR_THREADS = 4;
    unsigned int *all = managed(NR_THREADS * 100);
    std::vector<unsigned long long> sums(NR_THREADS);
    std::vector<std::thread> threads;
    for (int i = 0; i < NR_THREADS; i++) {
        threads.emplace_back([&, i] {
            cudaStream_t stream;
            unsigned int *own = all + i * 100;
            cudaStreamCreate(&stream);
            for (int round = 0; round < 50; round++) {
                own[round] += round;
                add<<<1, 100, 0, stream>>>(own, 100, i);
                cudaStreamSynchronize(stream);
                own[99 - round % 50] += 1;
                sums[i] += own[50];
            }
            cudaStreamDestroy(stream);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    DO(cudaGetLastError());
    for (unsigned long long each : sums) {
        say_number("sum", each);
    }
    say_number("all", sum(all, NR_THREADS * 100));
}

/* System calls reach it as the program does. */
CASE(managed_system_calls)
{
    unsigned int *values = managed(NR);
    std::vector<unsigned int> host(NR);
    FILE *file = tmpfile();
    for (int round = 0; round < 2; round++) {
        add_and_wait(values, NR, 1 + round);
        rewind(file);
        say_number("written", fwrite(values, 4, NR, file));
        say_number("flushed", fflush(file));
        rewind(file);
        say_number("read", fread(host.data(), 4, NR, file));
        say_number("sum", sum(host.data(), NR));
        host[5] = 1;
        rewind(file);
        say_number("written again", fwrite(host.data(), 4, NR, file));
        say_number("flushed again", fflush(file));
        add_and_wait(values, NR, 100);
        say_number("read by the call", pread(fileno(file), values, NR * 4, 0));
        say_number("has", sum(values, NR));
    }
    fclose(file);
}

ALONE(managed_fork)
{
    unsigned int *values = managed(NR);
    add_and_wait(values, NR, 1);
    const pid_t child = fork();
    if (child == 0) {
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say_number("child", WEXITSTATUS(status));
    say_number("sum", sum(values, NR));
    add_and_wait(values, NR, 1);
    say_number("sum again", sum(values, NR));
}

CASE(managed_prefetched)
{
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    cudaMemLocation host = {};
    host.type = cudaMemLocationTypeHost;
    unsigned int *values = managed(NR);
    for (size_t i = 0; i < NR; i++) {
        values[i] = (unsigned int)i;
    }
    DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseSetReadMostly, device));
    DO(cudaMemPrefetchAsync(values, NR * 4, device, 0, nullptr));
    add_and_wait(values, NR, 1);
    DO(cudaMemPrefetchAsync(values + 1000, 40000, host, 0, nullptr));
    DO(cudaDeviceSynchronize());
    say_number("sum", sum(values, NR));
    DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseUnsetReadMostly, device));
    DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseSetPreferredLocation, host));
    add_and_wait(values, NR, 2);
    say_number("preferred on the host", sum(values, NR));
    DO(cudaFree(values));
    DO(cudaMemPrefetchAsync(values, NR * 4, device, 0, nullptr));
}

CASE(managed_attached)
{
    cudaStream_t stream;
    unsigned int *values = managed(NR);
    DO(cudaStreamCreate(&stream));
    DO(cudaStreamAttachMemAsync(stream, values, 0, cudaMemAttachSingle));
    DO(cudaStreamSynchronize(stream));
    values[0] = 3;
    LAUNCH(add<<<32, 128, 0, stream>>>(values, NR, 1));
    DO(cudaStreamSynchronize(stream));
    say_number("sum", sum(values, NR));
    DO(cudaStreamAttachMemAsync(stream, values, 0, cudaMemAttachHost));
    values[0] = 4;
    DO(cudaStreamAttachMemAsync(stream, values, 0, cudaMemAttachGlobal));
    add_and_wait(values, NR, 2);
    say_number("sum again", sum(values, NR));
    DO(cudaStreamDestroy(stream));
}

ALONE(managed_variables)
{
    say_number("one at first", one_variable);
    say_number("odd at first", odd_variable[2]);
    another_variable = 60;
    large_variable[7] = 70;
    for (unsigned int round = 1; round < 4; round++) {
        one_variable *= 2;
        odd_variable[round] += 5;
        LAUNCH(use_variables<<<1, 1>>>(round));
        DO(cudaDeviceSynchronize());
        say_number("one", one_variable);
        say_number("another", another_variable);
        say_bytes("odd", odd_variable, sizeof(odd_variable));
        say_number("large", sum(large_variable, NR));
        large_variable[NR - 1] = round;
    }
    unsigned int value = 9;
    void *address = nullptr;
    size_t bytes = 0;
    DO(cudaMemcpyToSymbol(one_variable, &value, sizeof(value)));
    say_number("copied to", one_variable);
    one_variable = 33;
    DO(cudaMemcpyFromSymbol(&value, one_variable, sizeof(value)));
    say_number("copied from", value);
    DO(cudaGetSymbolAddress(&address, one_variable));
    say_number("the same", address == &one_variable);
    DO(cudaGetSymbolSize(&bytes, odd_variable));
    say_number("bytes", bytes);
    DO(cudaMemset(large_variable, 1, sizeof(large_variable)));
    say_number("set", sum(large_variable, NR));
    cudaPointerAttributes attributes;
    DO(cudaPointerGetAttributes(&attributes, &another_variable));
    say_number("type", attributes.type);
    say_number("host pointer", attributes.hostPointer == &another_variable);
    DO(cudaFree(&another_variable));
}

/* Whatever becomes of them, what has nothing to do with them goes on. */
ALONE(managed_variables_before_a_reset)
{
    another_variable = 4;
    LAUNCH(use_variables<<<1, 1>>>(1));
    DO(cudaDeviceSynchronize());
    say_number("one", one_variable);
    one_variable = 8;
    DO(cudaDeviceReset());
    for (int round = 0; round < 2; round++) {
        unsigned int *values = managed(NR);
        add_and_wait(values, NR, round);
        say_number("sum", sum(values, NR));
        DO(cudaDeviceReset());
    }
}

static const char *ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 shared[4] = {1, 2, 3, 4};
.visible .global .align 4 .u32 own[4] = {5, 6, 7, 8};
.visible .entry swap()
{
    .reg .u32 %r<5>;
    .reg .u64 %rd<3>;
    ld.global.u32 %r1, [shared+4];
    ld.global.u32 %r2, [own+4];
    st.global.u32 [shared+4], %r2;
    st.global.u32 [own+4], %r1;
    ret;
}
)";

/* Of a module: its address is the program's, too. */
CASE(managed_variables_of_a_module)
{
    cudaLibrary_t library;
    cudaKernel_t kernel;
    unsigned int *shared = nullptr, *own = nullptr;
    size_t bytes = 0;
    DO(cudaLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    DO(cudaLibraryGetKernel(&kernel, library, "swap"));
    DO(cudaLibraryGetManaged((void **)&shared, &bytes, library, "shared"));
    DO(cudaLibraryGetManaged((void **)&own, &bytes, library, "own"));
    say_number("at first", shared[1]);
    shared[0] = 10;
    for (int round = 0; round < 2; round++) {
        DO(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), nullptr, 0, nullptr));
        DO(cudaDeviceSynchronize());
        say_bytes("shared", shared, 16);
        shared[1] = 20;
    }
    DO(cudaLibraryGetGlobal((void **)&own, &bytes, library, "own"));
    say_device_bytes("own", own, 16);
    DO(cudaLibraryUnload(library));
}

CASE(managed_after_a_reset)
{
    unsigned int *values = managed(NR), *one = managed(1);
    add_and_wait(values, NR, 1);
    *one = 1;
    DO(cudaDeviceReset());
    values = managed(NR);
    say_number("zero", sum(values, NR));
    add_and_wait(values, NR, 1);
    say_number("sum", sum(values, NR));
    DO(cudaFree(values));
    DO(cudaMallocManaged(&values, 0));
    DO(cudaMallocManaged(&values, 100, 9));
    DO(cudaMallocManaged(static_cast<unsigned int **>(nullptr), 100));
}
