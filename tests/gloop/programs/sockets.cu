/*
 * sockets serve PORT NR [PATH]: an echo server of NR blocks, until a connection sends "end"; with a path all that comes
 * goes by that file, where each block has a place. sockets ask PORT BYTES NR: NR blocks that each connect, send so many
 * bytes, get them back and compare. sockets end PORT: sends "end". sockets errors PORT: what calls that fail return,
 * beside a server.
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

/* A block's: its sockets, where bytes come to, and the file by which they go, or -1. */
struct Server {
    int listening, file;
    Bytes *buffer;
};

__device__ void serve(Loop *loop, Server server);
__device__ void echo(Loop *loop, Server server, int connection);

__device__ void answer(Loop *loop, Server server, int connection, int received)
{
    gloop::net::send(loop, connection, received, server.buffer,
                     [=](Loop *loop, int) { echo(loop, server, connection); });
}

/* Nothing is left of what came but in the file. */
__device__ void answer_by_file(Loop *loop, Server server, int connection, int received)
{
    const unsigned long long place = loop->logicalBlockIdx().x * buffer_bytes;
    gloop::fs::write(loop, server.file, place, received, server.buffer, [=](Loop *loop, int written) {
        for (int byte = threadIdx.x; byte < received; byte += blockDim.x) {
            server.buffer[byte] = 0;
        }
        gloop::fs::read(loop, server.file, place, received, server.buffer,
                        [=](Loop *loop, int read) { answer(loop, server, connection, read); });
    });
}

__device__ void echo(Loop *loop, Server server, int connection)
{
    const Bytes *buffer = server.buffer;
    gloop::net::receive(loop, connection, buffer_bytes, server.buffer, [=](Loop *loop, int received) {
        if (received == 3 && buffer[0] == 'e' && buffer[1] == 'n' && buffer[2] == 'd') {
            gloop::net::close(loop, connection, [=](Loop *loop, int) { loop->forceExit(); });
        } else if (received <= 0) {
            gloop::net::close(loop, connection, [=](Loop *loop, int) { serve(loop, server); });
        } else if (server.file < 0) {
            answer(loop, server, connection, received);
        } else {
            answer_by_file(loop, server, connection, received);
        }
    });
}

__device__ void serve(Loop *loop, Server server)
{
    gloop::net::accept(loop, server.listening, [=](Loop *loop, int connection) {
        if (connection >= 0) {
            echo(loop, server, connection);
        }
    });
}

void serve_all(gloop::HostLoop &host, int port, unsigned nr_blocks, const gloop::Name path)
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
        Bytes *buffer = buffers + std::size_t(loop->logicalBlockIdx().x) * buffer_bytes;
        if (path.text[0] == 0) {
            serve(loop, {socket, -1, buffer});
        } else {
            gloop::fs::open(loop, path.text, O_RDWR | O_CREAT, 0600, [=](Loop *loop, int file) {
                if (file >= 0) {
                    serve(loop, {socket, file, buffer});
                }
            });
        }
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
            serve_all(host, port, std::stoul(arguments[3]), gloop::Name(nr_arguments > 4 ? arguments[4] : ""));
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
