/* Files on the host, and those of their pages that are in the device's memory. */
#ifndef GLOOP_FILES_CUH
#define GLOOP_FILES_CUH

#include <condition_variable>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job.cuh"

namespace gloop
{
namespace detail
{

/* `step(place, offset, bytes)` again and again, as it may do less than all: how much in all, or minus errno. */
template <class Step> std::int64_t in_steps(std::size_t bytes, std::size_t at_once, const Step &step)
{
    std::size_t done = 0;
    while (done < bytes) {
        const std::int64_t result = step(done, std::min(at_once, bytes - done));
        if (result < 0) {
            return result;
        }
        if (result == 0) {
            break;
        }
        done += result;
    }
    return std::int64_t(done);
}

inline std::int64_t or_errno(std::int64_t result)
{
    return result < 0 ? -errno : result;
}

inline std::int64_t read_all(int fd, unsigned char *target, std::size_t bytes, std::uint64_t offset)
{
    return in_steps(bytes, bytes, [=](std::size_t done, std::size_t left) {
        return or_errno(pread(fd, target + done, left, off_t(offset + done)));
    });
}

inline std::int64_t write_all(int fd, const unsigned char *source, std::size_t bytes, std::uint64_t offset)
{
    return in_steps(bytes, bytes, [=](std::size_t done, std::size_t left) {
        return or_errno(pwrite(fd, source + done, left, off_t(offset + done)));
    });
}

inline std::int64_t read_to_device(Copier &copier, int fd, std::uint64_t address, std::size_t bytes,
                                   std::uint64_t offset)
{
    return in_steps(bytes, Copier::bytes_at_once, [&](std::size_t done, std::size_t left) {
        const std::int64_t read = read_all(fd, copier.staging(), left, offset + done);
        if (read > 0) {
            copier.to_device(address + done, read);
        }
        return read;
    });
}

inline std::int64_t write_from_device(Copier &copier, int fd, std::uint64_t address, std::size_t bytes,
                                      std::uint64_t offset)
{
    return in_steps(bytes, Copier::bytes_at_once, [&](std::size_t done, std::size_t left) {
        copier.from_device(address + done, left);
        return write_all(fd, copier.staging(), left, offset + done);
    });
}

/*
 * Pages of files in device memory, 64 KiB each. A piece is a run of pages that lie together, on the file and on the
 * device; it stays when nobody has it mapped, until its pages are needed, oldest use first. A mapping to be written has
 * a piece of its own, until munmap.
 */
class Cache
{
  public:
    explicit Cache(std::size_t bytes) : owners_(bytes / page_bytes)
    {
        if (!owners_.empty()) {
            pages_ = make_device_memory(owners_.size() * page_bytes);
        }
    }

    /* An address, or minus errno. What lies behind the file's end is zero. */
    std::int64_t map(Copier &copier, const Line &line)
    {
        struct stat file;
        if (::fstat(line.fd, &file) != 0) {
            return -errno;
        }
        if (line.bytes == 0 || line.offset >= std::uint64_t(file.st_size)) {
            return -EINVAL;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        std::shared_ptr<Piece> piece = line.flags & PROT_WRITE ? nullptr : find(file, line);
        if (piece) {
            nr_hits_++;
            piece->nr_users++;
            loaded_.wait(lock, [&] { return !piece->is_loading; });
        } else {
            piece = make(file, line);
            if (!piece) {
                return -ENOMEM;
            }
            lock.unlock();
            piece->error = load(copier, *piece, line.fd);
            lock.lock();
            piece->is_loading = false;
            loaded_.notify_all();
        }
        if (piece->error) {
            piece->is_stale = true;
            leave(piece);
            return piece->error;
        }
        return std::int64_t(address_of(*piece) + line.offset - piece->first * page_bytes);
    }

    std::int64_t sync(Copier &copier, std::uint64_t address)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        const std::shared_ptr<Piece> piece = owner_of(address);
        if (!piece) {
            return -EINVAL;
        }
        if (piece->written_fd < 0) {
            return 0;
        }
        lock.unlock();
        const std::int64_t result = write_from_device(copier, piece->written_fd, address, piece->bytes, piece->offset);
        forget(piece->written_fd);
        return result < 0 ? result : 0;
    }

    std::int64_t unmap(Copier &copier, std::uint64_t address)
    {
        const std::int64_t result = sync(copier, address);
        const std::lock_guard<std::mutex> lock(mutex_);
        if (const std::shared_ptr<Piece> piece = owner_of(address)) {
            piece->is_stale |= piece->written_fd >= 0;
            leave(piece);
        }
        return result;
    }

    /* A file that has been written: times of files are too coarse to tell. */
    void forget(int fd)
    {
        struct stat file;
        const std::lock_guard<std::mutex> lock(mutex_);
        if (::fstat(fd, &file) == 0) {
            each_piece([&](const std::shared_ptr<Piece> &piece) { piece->is_stale |= is_of(*piece, file); });
        }
    }

    unsigned long long nr_hits() const
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        return nr_hits_;
    }

  private:
    struct Piece {
        dev_t device;
        ino_t inode;
        timespec changed;
        std::size_t first, nr_pages, page;
        std::uint64_t offset, bytes;
        int written_fd = -1;
        unsigned nr_users = 1;
        std::uint64_t used = 0;
        std::int64_t error = 0;
        bool is_loading = true, is_stale = false;

        ~Piece()
        {
            if (written_fd >= 0) {
                ::close(written_fd);
            }
        }
    };

    static bool is_of(const Piece &piece, const struct stat &file)
    {
        return piece.device == file.st_dev && piece.inode == file.st_ino && piece.written_fd < 0;
    }

    template <class Do> void each_piece(const Do &act)
    {
        for (std::size_t page = 0; page < owners_.size(); page++) {
            if (const std::shared_ptr<Piece> piece = owners_[page]; piece && piece->page == page) {
                act(piece);
            }
        }
    }

    std::uint64_t address_of(const Piece &piece) const
    {
        return reinterpret_cast<std::uint64_t>(pages_.get()) + piece.page * page_bytes;
    }

    std::shared_ptr<Piece> owner_of(std::uint64_t address) const
    {
        const std::uint64_t page = (address - reinterpret_cast<std::uint64_t>(pages_.get())) / page_bytes;
        return page < owners_.size() && owners_[page] && owners_[page]->nr_users ? owners_[page] : nullptr;
    }

    std::shared_ptr<Piece> find(const struct stat &file, const Line &line)
    {
        std::shared_ptr<Piece> found;
        each_piece([&](const std::shared_ptr<Piece> &piece) {
            const bool is_same = is_of(*piece, file) && piece->changed.tv_sec == file.st_mtim.tv_sec &&
                                 piece->changed.tv_nsec == file.st_mtim.tv_nsec && !piece->is_stale;
            if (is_same && piece->first <= line.offset / page_bytes &&
                line.offset + line.bytes <= (piece->first + piece->nr_pages) * page_bytes) {
                piece->used = ++clock_;
                found = piece;
            }
        });
        return found;
    }

    std::shared_ptr<Piece> make(const struct stat &file, const Line &line)
    {
        const auto piece = std::make_shared<Piece>();
        piece->device = file.st_dev;
        piece->inode = file.st_ino;
        piece->changed = file.st_mtim;
        piece->first = line.offset / page_bytes;
        piece->nr_pages = (line.offset + line.bytes + page_bytes - 1) / page_bytes - piece->first;
        piece->offset = line.offset;
        piece->bytes = std::min<std::uint64_t>(line.bytes, file.st_size - line.offset);
        piece->used = ++clock_;
        while (!is_placed(*piece)) {
            std::shared_ptr<Piece> oldest;
            each_piece([&](const std::shared_ptr<Piece> &other) {
                if (other->nr_users == 0 && (!oldest || other->used < oldest->used)) {
                    oldest = other;
                }
            });
            if (!oldest) {
                return nullptr;
            }
            empty(*oldest);
        }
        std::fill_n(owners_.begin() + piece->page, piece->nr_pages, piece);
        if (line.flags & PROT_WRITE) {
            piece->written_fd = fcntl(line.fd, F_DUPFD_CLOEXEC, 0);
        }
        return piece;
    }

    bool is_placed(Piece &piece) const
    {
        std::size_t nr_free = 0;
        for (std::size_t page = 0; page < owners_.size(); page++) {
            nr_free = owners_[page] ? 0 : nr_free + 1;
            if (nr_free == piece.nr_pages) {
                piece.page = page + 1 - nr_free;
                return true;
            }
        }
        return false;
    }

    std::int64_t load(Copier &copier, const Piece &piece, int fd)
    {
        const std::uint64_t offset = piece.first * page_bytes;
        const std::int64_t result =
            in_steps(piece.nr_pages * page_bytes, Copier::bytes_at_once, [&](std::size_t done, std::size_t left) {
                const std::int64_t read = read_all(fd, copier.staging(), left, offset + done);
                if (read >= 0) {
                    std::fill(copier.staging() + read, copier.staging() + left, 0);
                    copier.to_device(address_of(piece) + done, left);
                }
                return read < 0 ? read : std::int64_t(left);
            });
        return std::min<std::int64_t>(result, 0);
    }

    void leave(const std::shared_ptr<Piece> &piece)
    {
        if (--piece->nr_users == 0 && piece->is_stale) {
            empty(*piece);
        }
    }

    void empty(Piece &piece)
    {
        const std::size_t page = piece.page;
        std::fill_n(owners_.begin() + page, piece.nr_pages, nullptr);
    }

    mutable std::mutex mutex_;
    std::condition_variable loaded_;
    DeviceMemory pages_;
    std::vector<std::shared_ptr<Piece>> owners_;
    std::uint64_t clock_ = 0;
    unsigned long long nr_hits_ = 0;
};

} // namespace detail
} // namespace gloop

#endif
