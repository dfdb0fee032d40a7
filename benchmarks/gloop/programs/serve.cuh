/*
 * The host's side of a server, in all three ways: `serve_main<Service>`. Plain and split have a thread of the host for
 * each connection; by gloop the device has them. It says "listening PORT", serves until a message says that it shall
 * end, and says how many it has answered.
 *
 * --port N: where to listen, at 127.0.0.1. --connections N: at a time (4); more wait.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_SERVE_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_SERVE_CUH

#include <arpa/inet.h>
#include <atomic>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "port.cuh"
#include "server.cuh"

enum { SERVE_MOST_CONNECTIONS = 1024 };

static struct {
    struct server device;
    int port, nr_connections, listener;
    struct server_box *boxes; /* pinned, as the messages and answers of plain and split */
    unsigned char *messages, *answers;
    std::atomic<bool> is_ending;
} serve;

static void *serve_memory(size_t nr_bytes, bool is_pinned)
{
    void *memory;
    if (is_pinned) {
        BENCHMARK_CUDA(cudaHostAlloc(&memory, nr_bytes, cudaHostAllocDefault));
        return memset(memory, 0, nr_bytes);
    }
    BENCHMARK_CUDA(cudaMalloc(&memory, nr_bytes));
    BENCHMARK_CUDA(cudaMemset(memory, 0, nr_bytes));
    return memory;
}

template <class Service> static void serve_prepare(void)
{
    size_t nr = serve.nr_connections;
    serve.device.messages = (unsigned char *)serve_memory(nr * Service::message_bytes, false);
    serve.device.answers = (unsigned char *)serve_memory(nr * Service::answer_bytes, false);
    serve.device.nr_served = (unsigned long long *)serve_memory(sizeof(*serve.device.nr_served), false);
    serve.device.failure = (long long *)serve_memory(sizeof(*serve.device.failure), false);
    serve.device.socket = (int *)serve_memory(sizeof(*serve.device.socket), false);
    if (port_run.way != PORT_GLOOP) {
        serve.boxes = (struct server_box *)serve_memory(nr * sizeof(*serve.boxes), true);
        serve.messages = (unsigned char *)serve_memory(nr * Service::message_bytes, true);
        serve.answers = (unsigned char *)serve_memory(nr * Service::answer_bytes, true);
    }
}

static void serve_say(void)
{
    printf("listening %d\n", serve.port);
    fflush(stdout);
}

static void serve_listen(void)
{
    struct sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)serve.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    serve.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(serve.listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(serve.listener, (struct sockaddr *)&address, sizeof(address)) || listen(serve.listener, SOMAXCONN)) {
        benchmark_fail("port %d: %s", serve.port, strerror(errno));
    }
}

static bool serve_receive(int connection, unsigned char *to, size_t nr_bytes)
{
    return recv(connection, to, nr_bytes, MSG_WAITALL) == (ssize_t)nr_bytes;
}

static bool serve_send(int connection, const unsigned char *from, size_t nr_bytes)
{
    for (size_t sent = 0; sent < nr_bytes;) {
        ssize_t nr = send(connection, from + sent, nr_bytes - sent, MSG_NOSIGNAL);
        if (nr <= 0) {
            return false;
        }
        sent += nr;
    }
    return true;
}

/* Accepts until a message says that it shall end; `answer(number)` makes the answer of the message of a connection. */
template <class Service, class Answer> static void serve_connections(int number, const Answer &answer)
{
    unsigned char *message = serve.messages + (size_t)number * Service::message_bytes;
    int connection, on = 1;
    while (!serve.is_ending && (connection = accept4(serve.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        while (serve_receive(connection, message, Service::message_bytes)) {
            unsigned first;
            memcpy(&first, message, sizeof(first));
            if (first == SERVER_QUIT) {
                serve.is_ending = true;
                shutdown(serve.listener, SHUT_RDWR); /* ends the accept of the others */
                break;
            }
            answer(number);
            if (!serve_send(connection, serve.answers + (size_t)number * Service::answer_bytes,
                            Service::answer_bytes)) {
                break;
            }
        }
        close(connection);
    }
}

/* A thread for each connection, until all have ended. */
template <class Service, class Answer> static void serve_by_threads(const Answer &answer)
{
    std::vector<std::thread> threads;
    serve_listen();
    serve_say();
    for (int number = 0; number < serve.nr_connections; number++) {
        threads.emplace_back([=] { serve_connections<Service>(number, answer); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    close(serve.listener);
}

template <class Service> static void serve_plain(void)
{
    server_plain<Service><<<serve.nr_connections, SERVER_THREADS, Service::shared_bytes>>>(
        serve.device, serve.boxes, serve.messages, serve.answers);
    BENCHMARK_CUDA(cudaGetLastError());
    serve_by_threads<Service>([](int number) {
        struct server_box *box = serve.boxes + number;
        unsigned nr = box->nr_asked + 1;
        __atomic_store_n(&box->nr_asked, nr, __ATOMIC_RELEASE);
        while (__atomic_load_n(&box->nr_answered, __ATOMIC_ACQUIRE) != nr) {
            sched_yield();
        }
    });
    for (int number = 0; number < serve.nr_connections; number++) {
        __atomic_store_n(&serve.boxes[number].nr_asked, SERVER_QUIT, __ATOMIC_RELEASE);
    }
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

template <class Service> static void serve_split(void)
{
    std::vector<cudaStream_t> streams(serve.nr_connections);
    for (cudaStream_t &stream : streams) {
        BENCHMARK_CUDA(cudaStreamCreate(&stream));
    }
    std::atomic<unsigned long long> nr_served(0);
    serve_by_threads<Service>([&streams, &nr_served](int number) {
        size_t message = (size_t)number * Service::message_bytes, answer = (size_t)number * Service::answer_bytes;
        BENCHMARK_CUDA(cudaMemcpyAsync(serve.device.messages + message, serve.messages + message,
                                       Service::message_bytes, cudaMemcpyHostToDevice, streams[number]));
        for (int step = 0; step < Service::nr_steps; step++) {
            server_split<Service>
                <<<1, SERVER_THREADS, Service::shared_bytes, streams[number]>>>(serve.device, number, step);
        }
        BENCHMARK_CUDA(cudaGetLastError());
        BENCHMARK_CUDA(cudaMemcpyAsync(serve.answers + answer, serve.device.answers + answer, Service::answer_bytes,
                                       cudaMemcpyDeviceToHost, streams[number]));
        BENCHMARK_CUDA(cudaStreamSynchronize(streams[number]));
        nr_served++;
    });
    unsigned long long nr = nr_served;
    BENCHMARK_CUDA(cudaMemcpy(serve.device.nr_served, &nr, sizeof(nr), cudaMemcpyHostToDevice));
}

template <class Service> static void serve_on_gloop(void)
{
    struct server device = serve.device;
    int port = serve.port;
    port_host().launch(1, 32, [=] __device__(gloop::DeviceLoop<> *loop) { server_bind_on(loop, device, port); });
    long long failure;
    BENCHMARK_CUDA(cudaMemcpy(&failure, device.failure, sizeof(failure), cudaMemcpyDeviceToHost));
    if (failure) {
        benchmark_fail("port %d: %s", port, strerror((int)-failure));
    }
    serve_say();
    port_host().launchWithSharedMemory(
        serve.nr_connections, SERVER_THREADS, Service::shared_bytes,
        [=] __device__(gloop::DeviceLoop<> *loop) { server_accept_on<Service>(loop, device); });
}

template <class Service> static int serve_main(const char *name, int argc, char **argv)
{
    static struct port port = {};
    port_run.port = &port;
    port_run.way = port_take_way(&argc, argv);
    serve.port = (int)port_take_number(&argc, argv, "--port", 0, 65535);
    serve.nr_connections = (int)port_take_number(&argc, argv, "--connections", 4, SERVE_MOST_CONNECTIONS);
    if (argc != 1 || serve.port == 0) {
        benchmark_fail("%s --port N [--way plain|split|gloop] [--connections N]", name);
    }
    serve_prepare<Service>();
    try {
        static void (*const ways[NR_PORT_WAYS])(void) = {serve_plain<Service>, serve_split<Service>,
                                                         serve_on_gloop<Service>};
        ways[port_run.way]();
    } catch (const std::exception &error) {
        benchmark_fail("%s", error.what());
    }
    unsigned long long nr_served;
    long long failure;
    BENCHMARK_CUDA(cudaMemcpy(&nr_served, serve.device.nr_served, sizeof(nr_served), cudaMemcpyDeviceToHost));
    BENCHMARK_CUDA(cudaMemcpy(&failure, serve.device.failure, sizeof(failure), cudaMemcpyDeviceToHost));
    unsigned long long nr_kernels = port_run.host ? port_run.host->statistics().nr_kernels : 0;
    port_run.host.reset();
    if (failure) {
        benchmark_fail("a call of gloop failed: %s", strerror((int)-failure));
    }
    printf("{\"name\": \"%s\", \"way\": \"%s\", \"served\": %llu, \"kernels\": %llu}\n", name,
           port_way_names[port_run.way], nr_served, nr_kernels);
    return 0;
}

#endif
