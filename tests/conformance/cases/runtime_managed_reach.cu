/* Managed memory in all the ways that it is reached: copies, host functions, graphs, threads, system calls, beside a
 * kernel. */
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime_managed.cuh"

static __global__ void linger(long long cycles)
{
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
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
    unsigned int *values = managed(NR);
    std::vector<unsigned int> host(NR);
    DO(cudaStreamCreate(&stream));
    DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    values[5] = 50;
    LAUNCH(add<<<32, 128, 0, stream>>>(values, NR, 1));
    DO(cudaMemcpyAsync(host.data(), values, NR * 4, cudaMemcpyDeviceToHost, stream));
    values[6] = 60;
    launch_captured(stream, values, host, [](int) {});
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

/* Memory that is to stay with the CPU: both use it in turn, a few words at a time and all of it. */
CASE(managed_preferred_on_the_cpu)
{
    cudaMemLocation host = {}, device = {cudaMemLocationTypeDevice, 0};
    host.type = cudaMemLocationTypeHost;
    unsigned int *values = managed(NR);
    int where = 77;
    DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseSetPreferredLocation, host));
    DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseSetAccessedBy, device));
    DO(cudaMemRangeGetAttribute(&where, sizeof(where), cudaMemRangeAttributePreferredLocation, values, NR * 4));
    say_number("preferred", where);
    for (size_t i = 0; i < NR; i++) {
        values[i] = (unsigned int)i;
    }
    for (unsigned int round = 1; round <= 4; round++) {
        add_and_wait(values, NR, round);
        values[round * 1000] = round;
        say_number("the last one", values[NR - 1]);
    }
    say_number("sum", sum(values, NR));
    DO(cudaMemAdvise(values, NR * 4, cudaMemAdviseUnsetPreferredLocation, host));
    add_and_wait(values, NR, 5);
    say_number("sum again", sum(values, NR));
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
