/* GLoop: event-driven kernels, after Suzuki et al., "GLoop: An Event-driven Runtime for Consolidating GPGPU
 * Applications" (SoCC '17): nvcc -std=c++17 --extended-lambda -arch=sm_75 or newer, and docs/gloop.md.
 * Here are files and TCP sockets, for callbacks. Each call is made by all threads of a block and returns at once;
 * `callback(loop, result)` comes later, with what the call of the host returned (a descriptor, a socket; of fstat the
 * file's size), or minus errno. Buffers lie in global memory, and belong to the call until its callback runs. What a
 * block asks before it has an answer may be done in any order. A name has at most 255 bytes. */
#pragma once

#include "host_loop.cuh"

namespace gloop::fs
{
using namespace detail;

template <class Loop, class Callback>
__device__ void open(Loop *loop, const char *path, int flags, int mode, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::open, -1, 0, 0, 0, flags, mode}, path, callback GLOOP_HERE); }

template <class Loop, class Callback>
__device__ void open(Loop *loop, const char *path, int flags, const Callback &callback GLOOP_WHERE)
{ open(loop, path, flags, 0666, callback GLOOP_HERE); }

/* Reads as much as there is: fewer bytes than asked for are the end of the file. */
template <class Loop, class Callback>
__device__ void read(Loop *loop, int fd, uint64_t offset, uint64_t bytes, void *buffer,
                     const Callback &callback GLOOP_WHERE)
{ loop->request({Call::read, fd, offset, bytes, address_of(buffer), 0, 0, page_in}, nullptr, callback GLOOP_HERE); }

template <class Loop, class Callback>
__device__ void write(Loop *loop, int fd, uint64_t offset, uint64_t bytes, const void *buffer,
                      const Callback &callback GLOOP_WHERE)
{ loop->request({Call::write, fd, offset, bytes, address_of(buffer), 0, 0, page_out}, nullptr, callback GLOOP_HERE); }

/* The result is the address of these bytes of the file in the device's memory, in pages of 64 KiB that stay there after
 * munmap, too, until others need the place. A mapping that lies in another one shares its pages. What is written there
 * (PROT_WRITE, of a file that is open for both) reaches the file by msync alone. */
template <class Loop, class Callback>
__device__ void mmap(Loop *loop, int fd, uint64_t offset, uint64_t bytes, int protection,
                     const Callback &callback GLOOP_WHERE)
{ loop->request({Call::map, fd, offset, bytes, 0, protection}, nullptr, callback GLOOP_HERE); }

/* The whole mapping, by any address in its first page. */
template <class Loop, class Callback>
__device__ void munmap(Loop *loop, const void *mapped, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::unmap, -1, 0, 0, address_of(mapped)}, nullptr, callback GLOOP_HERE); }

template <class Loop, class Callback>
__device__ void msync(Loop *loop, const void *mapped, uint64_t bytes, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::sync, -1, 0, bytes, address_of(mapped)}, nullptr, callback GLOOP_HERE); }

template <class Loop, class Callback> __device__ void fstat(Loop *loop, int fd, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::stat, fd}, nullptr, callback GLOOP_HERE); }

template <class Loop, class Callback>
__device__ void ftruncate(Loop *loop, int fd, uint64_t bytes, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::resize, fd, 0, bytes}, nullptr, callback GLOOP_HERE); }

/* Who waits for a socket that is closed gets -ECANCELED. */
template <class Loop, class Callback> __device__ void close(Loop *loop, int fd, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::close, fd}, nullptr, callback GLOOP_HERE); }
} // namespace gloop::fs

namespace gloop::net
{
using namespace detail;
using fs::close;

template <class Loop, class Callback>
__device__ void connect(Loop *loop, const char *name, int port, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::connect, -1, 0, 0, 0, 0, port}, name, callback GLOOP_HERE); }

template <class Loop, class Callback>
__device__ void bind(Loop *loop, const char *name, int port, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::bind, -1, 0, 0, 0, 0, port}, name, callback GLOOP_HERE); }

/* Closes a socket that listens. */
template <class Loop, class Callback>
__device__ void unbind(Loop *loop, int socket, const Callback &callback GLOOP_WHERE)
{ close(loop, socket, callback GLOOP_HERE); }

template <class Loop, class Callback>
__device__ void accept(Loop *loop, int socket, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::accept, socket}, nullptr, callback GLOOP_HERE); }

/* The result is how many bytes came: at least one, at most as many as asked for; 0 when the peer has ended. */
template <class Loop, class Callback>
__device__ void receive(Loop *loop, int socket, uint64_t bytes, void *buffer, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::receive, socket, 0, bytes, address_of(buffer), 0, 0, page_in}, nullptr, callback GLOOP_HERE); }

/* Sends all of it: the result is `bytes`, or minus errno. */
template <class Loop, class Callback>
__device__ void send(Loop *loop, int socket, uint64_t bytes, const void *buffer, const Callback &callback GLOOP_WHERE)
{ loop->request({Call::send, socket, 0, bytes, address_of(buffer), 0, 0, page_out}, nullptr, callback GLOOP_HERE); }
} // namespace gloop::net
