/* TCP sockets, for callbacks: see fs.cuh. A name is an address or a host's name. */
#pragma once

#include "request.cuh"

namespace gloop::net
{

using detail::address_of;
using detail::Call;

/* The result is a socket. */
template <class Loop, class Callback>
__device__ void connect(Loop *loop, const char *name, int port, const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::connect, -1, 0, 0, 0, 0, port}, name, callback GLOOP_HERE);
}

/* The result is a socket that listens. */
template <class Loop, class Callback>
__device__ void bind(Loop *loop, const char *name, int port, const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::bind, -1, 0, 0, 0, 0, port}, name, callback GLOOP_HERE);
}

/* Closes a socket that listens; who waits for connections gets -ECANCELED. */
template <class Loop, class Callback>
__device__ void unbind(Loop *loop, int socket, const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::unbind, socket}, nullptr, callback GLOOP_HERE);
}

/* The result is a socket. */
template <class Loop, class Callback>
__device__ void accept(Loop *loop, int socket, const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::accept, socket}, nullptr, callback GLOOP_HERE);
}

/* The result is how many bytes came: at least one, at most as many as asked for; 0 when the peer has ended. */
template <class Loop, class Callback>
__device__ void receive(Loop *loop, int socket, std::uint64_t bytes, void *buffer, const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::receive, socket, 0, bytes, address_of(buffer)}, nullptr, callback GLOOP_HERE);
}

/* Sends all of it: the result is `bytes`, or minus errno. */
template <class Loop, class Callback>
__device__ void send(Loop *loop, int socket, std::uint64_t bytes, const void *buffer,
                     const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::send, socket, 0, bytes, address_of(buffer)}, nullptr, callback GLOOP_HERE);
}

/* Who waits for this socket gets -ECANCELED. */
template <class Loop, class Callback>
__device__ void close(Loop *loop, int socket, const Callback &callback GLOOP_WHERE)
{
    loop->request({Call::end, socket}, nullptr, callback GLOOP_HERE);
}

} // namespace gloop::net
