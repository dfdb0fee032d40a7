/* Managed memory that is to stay with the CPU (preferred location): what kernels, copies and the program do with it, as
 * it goes there and back, and what program and kernel tell each other while the kernel runs. */
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime_managed.cuh"

static cudaMemLocation place(cudaMemLocationType type)
{
    cudaMemLocation location = {};
    location.type = type;
    return location;
}

static void prefer_host(const void *memory, size_t bytes)
{
    DO(cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, place(cudaMemLocationTypeHost)));
}

static void prefer_nothing(const void *memory, size_t bytes)
{
    DO(cudaMemAdvise(memory, bytes, cudaMemAdviseUnsetPreferredLocation, place(cudaMemLocationTypeHost)));
}

/* Fresh, written by the CPU, written by the device, or by both in part. */
CASE(managed_host_from_each_state)
{
    for (int state = 0; state < 4; state++) {
        unsigned int *values = managed(NR);
        if ((state & 1) != 0) {
            values[9] = 90;
            values[NR - 1] = 7;
        }
        if ((state & 2) != 0) {
            add_and_wait(values, NR, 1);
            values[NR / 2] = 1;
        }
        prefer_host(values, NR * 4);
        say_number("as it was", sum(values, NR));
        values[10] += 3;
        add_and_wait(values, NR, 2);
        say_number("and more", sum(values, NR));
        DO(cudaFree(values));
    }
}

CASE(managed_host_there_and_back)
{
    unsigned int *values = managed(NR);
    for (unsigned int round = 0; round < 4; round++) {
        prefer_host(values, NR * 4);
        values[round] = round;
        add_and_wait(values, NR, round);
        say_number("on the host", values[NR - 1 - round]);
        if (round == 1) {
            DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseSetReadMostly, place(cudaMemLocationTypeHost)));
        } else if (round == 2) {
            DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseSetPreferredLocation, place(cudaMemLocationTypeDevice)));
        } else {
            prefer_nothing(values, NR * 4);
        }
        add_and_wait(values, NR, 5);
        say_number("sum", sum(values, NR));
        values[100 + round] = 9;
        add_and_wait(values, NR, 6);
        say_number("sum again", sum(values, NR));
        DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseUnsetReadMostly, place(cudaMemLocationTypeHost)));
    }
    int where = 77;
    DO(cudaMemRangeGetAttribute(&where, sizeof(where), cudaMemRangeAttributePreferredLocation, values, NR * 4));
    say_number("preferred", where);
}

/* Some of an allocation, then the rest of it. */
CASE(managed_host_in_parts)
{
    const size_t half = NR / 2 / 1024 * 1024;
    unsigned int *values = managed(NR);
    prefer_host(values, half * 4);
    values[3] = 4;
    add_and_wait(values, NR, 1);
    say_number("half", sum(values, NR));
    prefer_host(values + half, (NR - half) * 4);
    values[half] = 8;
    add_and_wait(values, NR, 2);
    say_number("all", sum(values, NR));
    prefer_nothing(values, half * 4);
    add_and_wait(values, NR, 3);
    say_number("half again", sum(values, NR));
}

/* What the program does right after a copy or a set without a stream is after it, on either side of a copy. */
CASE(managed_host_copies)
{
    unsigned int *values = managed(NR), *plain = managed(NR), *device = device_words(NR, 10);
    std::vector<unsigned int> host(NR, 3);
    prefer_host(values, NR * 4);
    DO(cudaMemcpy(values, host.data(), NR * 4, cudaMemcpyHostToDevice));
    say_number("from the host", sum(values, NR));
    values[1] = 50;
    DO(cudaMemcpy(host.data(), values, NR * 4, cudaMemcpyDeviceToHost));
    say_number("to the host", sum(host.data(), NR));
    DO(cudaMemcpy(values, device, NR * 4, cudaMemcpyDefault));
    say_number("from the device", sum(values, NR));
    values[2] = 60;
    DO(cudaMemcpy(device, values, NR * 4, cudaMemcpyDefault));
    values[2] = 0;
    say_device_bytes("to the device", device, 32);
    DO(cudaMemcpy(device, values, NR * 4, cudaMemcpyDeviceToDevice));
    values[2] = 61;
    say_device_bytes("likewise", device, 32);
    DO(cudaMemset(values + 20, 1, 4000));
    say_number("set", sum(values, NR));
    DO(cudaMemset2D(values, 4000, 2, 400, 100));
    say_number("set in rows", sum(values, NR));
    DO(cudaMemcpy2D(values, 4000, host.data(), 400, 400, 100, cudaMemcpyHostToDevice));
    say_number("rows", sum(values, NR));
    values[5] = 70;
    DO(cudaMemcpy2D(host.data(), 400, values, 4000, 400, 100, cudaMemcpyDeviceToHost));
    say_number("rows to the host", sum(host.data(), NR));
    plain[7] = 80;
    DO(cudaMemcpy(values + 1, plain, 4000, cudaMemcpyDefault));
    DO(cudaMemcpy(plain + 2000, values, 4000, cudaMemcpyDefault));
    values[1] = 0;
    say_number("from its like", sum(values, NR));
    say_number("to its like", sum(plain, NR));
    DO(cudaMemcpyAsync(values, host.data(), 4000, cudaMemcpyHostToDevice));
    DO(cudaMemcpyAsync(plain, values, 4000, cudaMemcpyDefault));
    DO(cudaDeviceSynchronize());
    say_number("one after the other", sum(plain, NR));
}

/* Small memory lies beside other small memory. */
CASE(managed_host_small)
{
    unsigned int *first = managed(10), *flag = managed(1), *large = managed(20000), *late = nullptr;
    first[9] = 3;
    large[19999] = 5;
    add_and_wait(large, 20000, 1);
    prefer_host(flag, 4);
    *flag = 7;
    late = managed(10);
    late[0] = 8;
    add_and_wait(first, 10, 1);
    add_and_wait(flag, 1, 2);
    add_and_wait(large, 20000, 3);
    add_and_wait(late, 10, 4);
    say_number("flag", *flag);
    say_number("first", sum(first, 10));
    say_number("large", sum(large, 20000));
    say_number("late", sum(late, 10));
    DO(cudaFree(flag));
    first[0] = 11;
    add_and_wait(first, 10, 1);
    say_number("first after it", sum(first, 10));
    prefer_host(late, 40);
    prefer_host(first, 40);
    add_and_wait(first, 10, 1);
    prefer_nothing(late, 40);
    add_and_wait(late, 10, 1);
    say_number("first again", sum(first, 10));
    say_number("late again", sum(late, 10));
    DO(cudaFree(first));
    DO(cudaFree(late));
    say_number("large still", sum(large, 20000));
    DO(cudaFree(large));
}

struct words {
    unsigned int begun, answered, seen;
};

static __global__ void exchange(volatile words *shared, unsigned int nr_rounds)
{
    for (unsigned int round = 1; round <= nr_rounds; round++) {
        shared->begun = round;
        __threadfence_system();
        while (shared->answered != round) {
        }
        shared->seen += shared->answered;
    }
}

/* The program answers each word of a kernel that runs, which waits for the answer. */
CASE(managed_host_words)
{
    volatile words *shared = nullptr;
    DO(cudaMallocManaged((void **)&shared, sizeof(*shared)));
    prefer_host((void *)shared, sizeof(*shared));
    for (int launch = 0; launch < 2; launch++) {
        shared->begun = shared->answered = shared->seen = 0;
        LAUNCH(exchange<<<1, 1>>>(shared, 100));
        for (unsigned int round = 1; round <= 100; round++) {
            while (shared->begun != round) {
            }
            shared->answered = round;
        }
        DO(cudaDeviceSynchronize());
        say_number("seen", shared->seen);
    }
}

static void answer(void *data)
{
    volatile words *shared = static_cast<volatile words *>(data);
    while (shared->begun != 1) {
    }
    shared->answered = 1;
}

/* A host function of one stream answers a kernel of another. */
CASE(managed_host_function_answers)
{
    cudaStream_t one, other;
    volatile words *shared = nullptr;
    DO(cudaMallocManaged((void **)&shared, sizeof(*shared)));
    prefer_host((void *)shared, sizeof(*shared));
    DO(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    LAUNCH(exchange<<<1, 1, 0, one>>>(shared, 1));
    DO(cudaLaunchHostFunc(other, answer, (void *)shared));
    DO(cudaStreamSynchronize(one));
    DO(cudaStreamSynchronize(other));
    say_number("seen", shared->seen);
}

/* A graph that was made executable before the memory went to the host, and is launched there and after it came back. */
CASE(managed_host_graph)
{
    cudaStream_t stream;
    unsigned int *values = managed(NR), *device = device_words(NR, 10);
    std::vector<unsigned int> host(NR);
    DO(cudaStreamCreate(&stream));
    DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    LAUNCH(add<<<32, 128, 0, stream>>>(values, NR, 1));
    DO(cudaMemsetAsync(values + 10, 0, 400, stream));
    DO(cudaMemcpyAsync(values + 1000, device, 4000, cudaMemcpyDefault, stream));
    DO(cudaMemcpyAsync(host.data(), values, NR * 4, cudaMemcpyDeviceToHost, stream));
    launch_captured(stream, values, host, [=](int round) {
        if (round == 1) {
            prefer_host(values, NR * 4);
        } else if (round == 2) {
            prefer_nothing(values, NR * 4);
        }
    });
    DO(cudaStreamDestroy(stream));
}

/* What other threads write while the memory goes to the host and back is not lost. */
CASE(managed_host_threads)
{
    static const size_t NR_THREADS = 4;
    for (int round = 0; round < 3; round++) {
        unsigned int *values = managed(NR_THREADS * NR);
        add_and_wait(values, NR_THREADS * NR, 1);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < NR_THREADS; i++) {
            threads.emplace_back([=] {
                for (size_t j = 0; j < NR; j++) {
                    values[i * NR + j] += 3;
                }
            });
        }
        prefer_host(values, NR_THREADS * NR * 4);
        prefer_nothing(values, NR_THREADS * NR * 4);
        for (std::thread &thread : threads) {
            thread.join();
        }
        say_number("sum", sum(values, NR_THREADS * NR));
        add_and_wait(values, NR_THREADS * NR, 2);
        say_number("and more", sum(values, NR_THREADS * NR));
        DO(cudaFree(values));
    }
}

CASE(managed_host_system_calls)
{
    unsigned int *values = managed(NR);
    FILE *file = tmpfile();
    prefer_host(values, NR * 4);
    add_and_wait(values, NR, 1);
    say_number("written", pwrite(fileno(file), values, NR * 4, 0));
    add_and_wait(values, NR, 100);
    say_number("read", pread(fileno(file), values, NR * 4, 0));
    say_number("has", sum(values, NR));
    fclose(file);
}

CASE(managed_host_after_a_reset)
{
    unsigned int *values = managed(NR), *one = managed(1);
    prefer_host(values, NR * 4);
    prefer_host(one, 4);
    add_and_wait(values, NR, 1);
    DO(cudaDeviceReset());
    values = managed(NR);
    prefer_host(values, NR * 4);
    say_number("zero", sum(values, NR));
    add_and_wait(values, NR, 1);
    say_number("sum", sum(values, NR));
}
