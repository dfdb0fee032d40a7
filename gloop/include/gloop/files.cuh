/* Reading and writing files on the host, all that is asked for, to and from both memories. */
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.cuh"

namespace gloop::detail
{
/* `step(done, left)` until all is done, or one did nothing: how much in all, or minus errno. */
template <class Step> int64_t in_steps(size_t bytes, size_t at_once, const Step &step)
{
    size_t done = 0;
    for (int64_t result = 1; result && done < bytes; done += result) {
        result = step(done, std::min(at_once, bytes - done));
        if (result < 0) { return result; }
    }
    return int64_t(done);
}

inline int64_t or_errno(int64_t result) { return result < 0 ? -errno : result; }

inline int64_t read_all(int fd, unsigned char *target, size_t bytes, uint64_t offset)
{
    return in_steps(bytes, bytes, [=](size_t done, size_t left) {
        return or_errno(pread(fd, target + done, left, off_t(offset + done)));
    });
}

inline int64_t write_all(int fd, const unsigned char *source, size_t bytes, uint64_t offset)
{
    return in_steps(bytes, bytes, [=](size_t done, size_t left) {
        return or_errno(pwrite(fd, source + done, left, off_t(offset + done)));
    });
}

/* `is_filled`: behind the file's end with zeros. */
inline int64_t read_to_device(Copier &copier, int fd, uint64_t address, size_t bytes, uint64_t offset, bool is_filled)
{
    return in_steps(bytes, Copier::bytes_at_once, [&](size_t done, size_t left) {
        const int64_t read = read_all(fd, copier.staging(), left, offset + done);
        const int64_t copied = is_filled && read >= 0 ? left : read;
        if (copied <= 0) { return copied; }
        std::fill(copier.staging() + read, copier.staging() + copied, 0);
        copier.to_device(address + done, copied);
        return copied;
    });
}

inline int64_t write_from_device(Copier &copier, int fd, uint64_t address, size_t bytes, uint64_t offset)
{
    return in_steps(bytes, Copier::bytes_at_once, [&](size_t done, size_t left) {
        copier.from_device(address + done, left);
        return write_all(fd, copier.staging(), left, offset + done);
    });
}
} // namespace gloop::detail
