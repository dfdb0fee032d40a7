/*
 * Files, for callbacks. Each call is made by all threads of a block and returns at once; `callback(loop, result)` comes
 * later, with what the call of the host returned, or minus errno. Buffers lie in global memory, and belong to the call
 * until its callback runs.
 */
#ifndef GLOOP_FS_CUH
#define GLOOP_FS_CUH

#include <fcntl.h>
#include <sys/mman.h>

#include "request.cuh"

namespace gloop
{
namespace fs
{

/* The result is a descriptor. The mode is the one of files that are made. */
template <class Where, class Callback>
__device__ void open(DeviceLoop<Where> *loop, const char *path, int flags, int mode,
                     const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::open, -1, flags, mode, 0, 0, 0, 0, 0}, path, callback GLOOP_HERE);
}

template <class Where, class Callback>
__device__ void open(DeviceLoop<Where> *loop, const char *path, int flags, const Callback &callback GLOOP_WHERE)
{
    open(loop, path, flags, 0666, callback GLOOP_HERE);
}

/* Reads as much as there is: fewer bytes than asked for are the end of the file. */
template <class Where, class Callback>
__device__ void read(DeviceLoop<Where> *loop, int fd, std::uint64_t offset, std::uint64_t bytes, void *buffer,
                     const Callback &callback GLOOP_WHERE)
{
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    loop->request({detail::Call::read, fd, 0, 0, offset, bytes, address, 0, 0}, nullptr, callback GLOOP_HERE);
}

template <class Where, class Callback>
__device__ void write(DeviceLoop<Where> *loop, int fd, std::uint64_t offset, std::uint64_t bytes, const void *buffer,
                      const Callback &callback GLOOP_WHERE)
{
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    loop->request({detail::Call::write, fd, 0, 0, offset, bytes, address, 0, 0}, nullptr, callback GLOOP_HERE);
}

/*
 * The result is the address of these bytes of the file in the device's memory, where pages of 64 KiB are kept after
 * munmap, too. The offset is any. With PROT_WRITE the memory is this mapping's own, and msync and munmap write it to
 * the file.
 */
template <class Where, class Callback>
__device__ void mmap(DeviceLoop<Where> *loop, int fd, std::uint64_t offset, std::uint64_t bytes, int protection,
                     const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::mmap, fd, protection, 0, offset, bytes, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

/* What mmap gave, whole. */
template <class Where, class Callback>
__device__ void munmap(DeviceLoop<Where> *loop, const void *mapped, const Callback &callback GLOOP_WHERE)
{
    const auto address = reinterpret_cast<std::uint64_t>(mapped);
    loop->request({detail::Call::munmap, -1, 0, 0, 0, 0, address, 0, 0}, nullptr, callback GLOOP_HERE);
}

template <class Where, class Callback>
__device__ void msync(DeviceLoop<Where> *loop, const void *mapped, const Callback &callback GLOOP_WHERE)
{
    const auto address = reinterpret_cast<std::uint64_t>(mapped);
    loop->request({detail::Call::msync, -1, 0, 0, 0, 0, address, 0, 0}, nullptr, callback GLOOP_HERE);
}

/* The result is the file's size. */
template <class Where, class Callback>
__device__ void fstat(DeviceLoop<Where> *loop, int fd, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::fstat, fd, 0, 0, 0, 0, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

template <class Where, class Callback>
__device__ void ftruncate(DeviceLoop<Where> *loop, int fd, std::uint64_t bytes, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::ftruncate, fd, 0, 0, 0, bytes, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

template <class Where, class Callback>
__device__ void close(DeviceLoop<Where> *loop, int fd, const Callback &callback GLOOP_WHERE)
{
    loop->request({detail::Call::close, fd, 0, 0, 0, 0, 0, 0, 0}, nullptr, callback GLOOP_HERE);
}

} // namespace fs
} // namespace gloop

#endif
