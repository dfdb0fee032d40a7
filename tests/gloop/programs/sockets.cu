/*
 * sockets serve PORT NR: an echo server of NR blocks, until a connection sends "end". sockets ask PORT BYTES NR: NR
 * blocks that each connect, send so many bytes, get them back and compare. sockets end PORT: sends "end". sockets
 * errors PORT: what calls that fail return, beside a server.
 */
#include <csignal>
#include <cstdio>
#include <gloop/gloop.cuh>
#include <string>

using Loop = gloop::DeviceLoop<>;

namespace
{

using Bytes = unsigned char;
constexpr unsigned buffer_bytes = 512 * 1024;

__device__ void serve(Loop *loop, int listening, Bytes *buffer);

__device__ void echo(Loop *loop, int listening, int connection, Bytes *buffer)
{
    gloop::net::receive(loop, connection, buffer_bytes, buffer, [=](Loop *loop, int received) {
        if (received == 3 && buffer[0] == 'e' && buffer[1] == 'n' && buffer[2] == 'd') {
            gloop::net::close(loop, connection, [=](Loop *loop, int) { loop->forceExit(); });
        } else if (received <= 0) {
            gloop::net::close(loop, connection, [=](Loop *loop, int) { serve(loop, listening, buffer); });
        } else {
            gloop::net::send(loop, connection, received, buffer,
                             [=](Loop *loop, int) { echo(loop, listening, connection, buffer); });
        }
    });
}

__device__ void serve(Loop *loop, int listening, Bytes *buffer)
{
    gloop::net::accept(loop, listening, [=](Loop *loop, int connection) {
        if (connection >= 0) {
            echo(loop, listening, connection, buffer);
        }
    });
}

void serve_all(gloop::HostLoop &host, int port, unsigned nr_blocks)
{
    Bytes *buffers = nullptr;
    int *listening = nullptr;
    cudaMalloc(&buffers, std::size_t(nr_blocks) * buffer_bytes);
    cudaMallocHost(&listening, sizeof(*listening));
    host.launch(1, 32, [=] __device__(Loop *loop) {
        gloop::net::bind(loop, "127.0.0.1", port, [=](Loop *, int socket) { *listening = socket; });
    });
    std::printf("%s\n", *listening >= 0 ? "listens" : "does not listen");
    std::fflush(stdout);
    const int socket = *listening;
    host.launch(nr_blocks, 64, [=] __device__(Loop *loop) {
        serve(loop, socket, buffers + std::size_t(loop->logicalBlockIdx().x) * buffer_bytes);
    });
    host.launch(1, 32, [=] __device__(Loop *loop) {
        gloop::net::accept(loop, socket, [=](Loop *, int result) { *listening = result; });
        /* What was asked before an answer came was seen before it. */
        gloop::fs::fstat(loop, socket, [=](Loop *loop, int) { gloop::net::unbind(loop, socket, [=](Loop *, int) {}); });
    });
    std::printf("accept while it closes %d\n", *listening);
}

__device__ void get(Loop *loop, int socket, unsigned bytes, unsigned done, Bytes *buffer, int *nr_right)
{
    if (done < bytes) {
        gloop::net::receive(loop, socket, bytes - done, buffer + done, [=](Loop *loop, int received) {
            if (received > 0) {
                get(loop, socket, bytes, done + received, buffer, nr_right);
            }
        });
        return;
    }
    bool is_right = true;
    for (unsigned byte = threadIdx.x; byte < bytes; byte += blockDim.x) {
        is_right = is_right && buffer[byte] == Bytes((byte + loop->logicalBlockIdx().x) % 253);
    }
    is_right = __syncthreads_and(is_right);
    gloop::net::close(loop, socket, [=](Loop *, int) {
        if (threadIdx.x == 0) {
            atomicAdd(nr_right, is_right);
        }
    });
}

void ask_all(gloop::HostLoop &host, int port, unsigned bytes, unsigned nr_blocks)
{
    Bytes *buffers = nullptr;
    int *nr_right = nullptr;
    cudaMalloc(&buffers, std::size_t(nr_blocks) * 2 * bytes);
    cudaMallocHost(&nr_right, sizeof(*nr_right));
    *nr_right = 0;
    host.launch(nr_blocks, 64, [=] __device__(Loop *loop) {
        Bytes *mine = buffers + std::size_t(loop->logicalBlockIdx().x) * 2 * bytes;
        gloop::net::connect(loop, "localhost", port, [=](Loop *loop, int socket) {
            for (unsigned byte = threadIdx.x; byte < bytes; byte += blockDim.x) {
                mine[byte] = (byte + loop->logicalBlockIdx().x) % 253;
            }
            gloop::net::send(loop, socket, bytes, mine, [=](Loop *, int) {});
            get(loop, socket, bytes, 0, mine + bytes, nr_right);
        });
    });
    std::printf("right %d\n", *nr_right);
}

void end_server(gloop::HostLoop &host, int port)
{
    Bytes *text = nullptr;
    cudaMalloc(&text, 3);
    cudaMemcpy(text, "end", 3, cudaMemcpyHostToDevice);
    host.launch(1, 32, [=] __device__(Loop *loop) {
        gloop::net::connect(loop, "127.0.0.1", port, [=](Loop *loop, int socket) {
            gloop::net::send(loop, socket, 3, text,
                             [=](Loop *loop, int) { gloop::net::receive(loop, socket, 1, text, [=](Loop *, int) {}); });
        });
    });
}

void try_errors(gloop::HostLoop &host, int port)
{
    long long *results = nullptr;
    cudaMallocHost(&results, 8 * sizeof(*results));
    host.launch(1, 32, [=] __device__(Loop *loop) {
        const auto store = [=](int number) { return [=](Loop *, long long result) { results[number] = result; }; };
        char name[300];
        for (int byte = 0; byte < 299; byte++) {
            name[byte] = '1';
        }
        name[299] = 0;
        gloop::net::bind(loop, "127.0.0.1", port, store(0));
        gloop::net::connect(loop, "127.0.0.1", 1, store(1));
        gloop::net::connect(loop, name, port, store(2));
        gloop::net::bind(loop, "no.such.host.invalid", port, store(3));
        gloop::net::accept(loop, 99, store(4));
        gloop::net::receive(loop, 99, 8, results, store(5));
        gloop::net::send(loop, 99, 8, results, store(6));
    });
    for (int number = 0; number < 7; number++) {
        std::printf("%lld ", results[number]);
    }
    std::printf("\n");
}

} // namespace

int main(int nr_arguments, char **arguments)
{
    const std::string what = nr_arguments > 2 ? arguments[1] : "";
    const int port = nr_arguments > 2 ? std::stoi(arguments[2]) : 0;
    try {
        gloop::HostLoop host;
        if (what == "serve") {
            serve_all(host, port, std::stoul(arguments[3]));
        } else if (what == "ask") {
            ask_all(host, port, std::stoul(arguments[3]), std::stoul(arguments[4]));
        } else if (what == "end") {
            end_server(host, port);
        } else {
            try_errors(host, port);
        }
    } catch (const gloop::Error &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
    return 0;
}
