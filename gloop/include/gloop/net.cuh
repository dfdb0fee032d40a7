/* TCP sockets, for callbacks: see fs.cuh. A name is an address or a host's name, of at most 255 bytes. */
#ifndef GLOOP_NET_CUH
#define GLOOP_NET_CUH

#include "request.cuh"

namespace gloop
{
namespace net
{

/* The result is a socket. */
template <class Where, class Callback>
__device__ void connect(DeviceLoop<Where> *loop, const char *name, int port, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::connect, -1, 0, port, 0, 0, 0, 0, 0}, name, callback GLOOP_HERE);
}

/* The result is a socket that listens. */
template <class Where, class Callback>
__device__ void bind(DeviceLoop<Where> *loop, const char *name, int port, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::bind, -1, 0, port, 0, 0, 0, 0, 0}, name, callback GLOOP_HERE);
}

/* Closes a socket that listens; who waits for connections gets -ECANCELED. */
template <class Where, class Callback>
__device__ void unbind(DeviceLoop<Where> *loop, int socket, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::unbind, socket, 0, 0, 0, 0, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

/* The result is a socket. */
template <class Where, class Callback>
__device__ void accept(DeviceLoop<Where> *loop, int socket, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::accept, socket, 0, 0, 0, 0, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

/* The result is how many bytes came: at least one, at most as many as asked for; 0 when the peer has ended. */
template <class Where, class Callback>
__device__ void receive(DeviceLoop<Where> *loop, int socket, std::uint64_t bytes, void *buffer,
                        const Callback &callback GLOOP_WHERE)
{
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    loop->request({detail::Call::receive, socket, 0, 0, 0, bytes, address, 0, 0}, nullptr, callback GLOOP_HERE);
}

/* Sends all of it: the result is `bytes`, or minus errno. */
template <class Where, class Callback>
__device__ void send(DeviceLoop<Where> *loop, int socket, std::uint64_t bytes, const void *buffer,
                     const Callback &callback GLOOP_WHERE)
{
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    loop->request({detail::Call::send, socket, 0, 0, 0, bytes, address, 0, 0}, nullptr, callback GLOOP_HERE);
}

/* Who waits for this socket gets -ECANCELED. */
template <class Where, class Callback>
__device__ void close(DeviceLoop<Where> *loop, int socket, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::end, socket, 0, 0, 0, 0, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

} // namespace net
} // namespace gloop

#endif
