/*
 * A server of connections, one for each block, in all three ways. A service says how long messages are, and what each
 * of the steps is by which an answer is made of a message.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_SERVER_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_SERVER_CUH

#include <cuda/atomic>

#include "gloop/gloop.cuh"
#include "server.h"

enum { SERVER_THREADS = 256, SERVER_PIECE = 64 * 1024 };

struct server {
    unsigned char *messages, *answers; /* of each block, in the device's memory */
    unsigned long long *nr_served;
    long long *failure; /* what a call of gloop gave that failed */
    int *socket;        /* that listens */
};

/* Plain: how the host and a block tell each other of a message and its answer. Pinned, a word for each writer. */
struct server_box {
    alignas(64) unsigned nr_asked;
    alignas(64) unsigned nr_answered;
};

template <class Service> __device__ unsigned char *server_message(const struct server &server, int block)
{
    __builtin_assume(__isGlobal(server.messages));
    return server.messages + (size_t)block * Service::message_bytes;
}

template <class Service> __device__ unsigned char *server_answer(const struct server &server, int block)
{
    __builtin_assume(__isGlobal(server.answers));
    return server.answers + (size_t)block * Service::answer_bytes;
}

template <class Service> __device__ void server_step(const struct server &server, int block, int step)
{
    Service::step(server_message<Service>(server, block), server_answer<Service>(server, block), step);
}

static __device__ void server_copy(void *to, const void *from, size_t nr_bytes)
{
    for (size_t at = threadIdx.x; at < nr_bytes / 16; at += SERVER_THREADS) {
        ((uint4 *)to)[at] = __ldcv((const uint4 *)from + at);
    }
    __syncthreads();
}

/* Split: one step of one message. */
template <class Service> __global__ void server_split(struct server server, int block, int step)
{
    server_step<Service>(server, block, step);
}

/* Plain: polls for messages, and ends when it is asked with 0. Messages and answers lie in pinned memory, too. */
template <class Service>
__global__ void server_plain(struct server server, struct server_box *boxes, const unsigned char *messages,
                             unsigned char *answers)
{
    __shared__ unsigned shared_asked;
    struct server_box *box = boxes + blockIdx.x;
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> asked(box->nr_asked), answered(box->nr_answered);
    for (unsigned nr = 1;; nr++) {
        if (threadIdx.x == 0) {
            while (asked.load(cuda::std::memory_order_acquire) == nr - 1) {
            }
            shared_asked = asked.load(cuda::std::memory_order_acquire);
        }
        __syncthreads();
        if (shared_asked == SERVER_QUIT) {
            return;
        }
        server_copy(server_message<Service>(server, blockIdx.x), messages + (size_t)blockIdx.x * Service::message_bytes,
                    Service::message_bytes);
        for (int step = 0; step < Service::nr_steps; step++) {
            server_step<Service>(server, blockIdx.x, step);
            __syncthreads();
        }
        server_copy(answers + (size_t)blockIdx.x * Service::answer_bytes, server_answer<Service>(server, blockIdx.x),
                    Service::answer_bytes);
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(server.nr_served, 1ull);
            answered.store(nr, cuda::std::memory_order_release);
        }
    }
}

static __device__ void server_fail(const struct server &server, long long result)
{
    if (threadIdx.x == 0) {
        *server.failure = result;
    }
}

template <class Loop> __device__ void server_bind_on(Loop *loop, struct server server, int port)
{
    gloop::net::bind(loop, "127.0.0.1", port, [=](Loop *loop, long long socket) {
        if (threadIdx.x == 0) {
            *server.socket = (int)socket;
        }
        if (socket < 0) {
            server_fail(server, socket);
        }
    });
}

template <class Service, class Loop>
__device__ void server_receive_on(Loop *loop, struct server server, int socket, size_t have);

template <class Service, class Loop> __device__ void server_accept_on(Loop *loop, struct server server)
{
    gloop::net::accept(loop, *server.socket, [=](Loop *loop, long long socket) {
        if (socket < 0) {
            server_fail(server, socket);
            return;
        }
        server_receive_on<Service>(loop, server, (int)socket, 0);
    });
}

/* Who hangs up makes room for the next one. */
template <class Service, class Loop> __device__ void server_close_on(Loop *loop, struct server server, int socket)
{
    gloop::net::close(loop, socket, [=](Loop *loop, long long result) { server_accept_on<Service>(loop, server); });
}

/* In pieces that go by a page of pinned memory each: the driver would copy more at once, in a turn of its own. */
template <class Service, class Loop>
__device__ void server_send_on(Loop *loop, struct server server, int socket, size_t sent)
{
    const size_t left = Service::answer_bytes - sent, bytes = left < SERVER_PIECE ? left : SERVER_PIECE;
    const unsigned char *answer = server_answer<Service>(server, loop->logicalBlockIdx().x);
    gloop::net::send(loop, socket, bytes, answer + sent, [=](Loop *loop, long long result) {
        if (result < 0) {
            server_close_on<Service>(loop, server, socket);
        } else if (sent + bytes < Service::answer_bytes) {
            server_send_on<Service>(loop, server, socket, sent + bytes);
        } else {
            server_receive_on<Service>(loop, server, socket, 0);
        }
    });
}

template <class Service, class Loop> __device__ void server_answer_on(Loop *loop, struct server server, int socket)
{
    if (threadIdx.x == 0) {
        atomicAdd(server.nr_served, 1ull);
    }
    server_send_on<Service>(loop, server, socket, 0);
}

template <class Service, class Loop>
__device__ void server_steps_on(Loop *loop, struct server server, int socket, int step)
{
    for (; step < Service::nr_steps; step++) {
        server_step<Service>(server, loop->logicalBlockIdx().x, step);
        if (loop->postTaskIfNecessary([=](Loop *loop) { server_steps_on<Service>(loop, server, socket, step + 1); })) {
            return;
        }
    }
    server_answer_on<Service>(loop, server, socket);
}

template <class Service, class Loop>
__device__ void server_receive_on(Loop *loop, struct server server, int socket, size_t have)
{
    unsigned char *message = server_message<Service>(server, loop->logicalBlockIdx().x);
    gloop::net::receive(loop, socket, Service::message_bytes - have, message + have, [=](Loop *loop, long long result) {
        if (result <= 0) {
            server_close_on<Service>(loop, server, socket);
        } else if (have + result < Service::message_bytes) {
            server_receive_on<Service>(loop, server, socket, have + result);
        } else if (*(volatile unsigned *)message == SERVER_QUIT) {
            loop->forceExit();
        } else {
            server_steps_on<Service>(loop, server, socket, 0);
        }
    });
}

#endif
