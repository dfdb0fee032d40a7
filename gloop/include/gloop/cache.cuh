/* Pages of files in device memory, 64 KiB each. A piece is a run of pages that lie together, in the file and on the
 * device. It stays when nobody has it mapped, until its place is needed, oldest use first. */
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>

#include "files.cuh"

namespace gloop::detail
{
/* What the system says of a file: asked once for requests that came together, as it takes longer than to answer one. */
struct File {
    int fd = -1;
    struct stat stat;
    bool look(int of)
    {
        if (of < 0 || of != fd) { fd = ::fstat(of, &stat) == 0 ? of : -1; }
        return fd >= 0;
    }
};

class Cache
{
  public:
    explicit Cache(size_t bytes) : nr_pages_(bytes / page_bytes)
    {
        if (nr_pages_) { pages_ = make_memory(nr_pages_ * page_bytes, false); }
    }

    /* An address, or minus errno; by null also 0, for pages that are not there. Behind the file's end all is zero. */
    int64_t map(Copier *copier, const Line &line, File &looked)
    {
        if (!looked.look(line.fd)) { return -errno; }
        const struct stat &file = looked.stat;
        if (line.bytes == 0 || line.offset >= uint64_t(file.st_size)) { return -EINVAL; }
        std::unique_lock lock(mutex_);
        Piece *piece = find(file, line);
        if (!copier && (!piece || piece->is_loading)) { return 0; }
        for (; piece && piece->is_loading; piece = find(file, line)) { loaded_.wait(lock); }
        if (piece) {
            nr_hits_++;
            piece->nr_users++;
        } else if (!(piece = make(file, line))) {
            return -ENOMEM;
        } else {
            lock.unlock();
            const int64_t result = load(*copier, *piece, line.fd);
            lock.lock();
            piece->is_loading = false;
            loaded_.notify_all();
            if (result < 0) {
                piece->is_stale = true;
                leave(*piece);
                return result;
            }
        }
        if ((line.flags & PROT_WRITE) && piece->fd < 0) { piece->fd = fcntl(line.fd, F_DUPFD_CLOEXEC, 0); }
        return int64_t(address_of(*piece) + line.offset - piece->first * page_bytes);
    }

    int64_t sync(Copier &copier, const Line &line)
    {
        std::unique_lock lock(mutex_);
        const Piece *piece = owner_of(line.address);
        if (!piece) { return -EINVAL; }
        const int fd = piece->fd;
        const uint64_t place = line.address - address_of(*piece), offset = piece->first * page_bytes + place;
        const uint64_t in_piece = std::min(line.bytes, piece->nr_pages * page_bytes - place);
        lock.unlock();
        struct stat file;
        if (fd < 0 || ::fstat(fd, &file) != 0 || offset >= uint64_t(file.st_size)) { return 0; }
        const uint64_t in_file = std::min<uint64_t>(in_piece, file.st_size - offset);
        const int64_t result = write_from_device(copier, fd, line.address, in_file, offset);
        forget(fd);
        return std::min<int64_t>(result, 0);
    }

    int64_t unmap(uint64_t address)
    {
        const std::lock_guard lock(mutex_);
        Piece *piece = owner_of(address);
        if (piece) { leave(*piece); }
        return piece ? 0 : -EINVAL;
    }

    /* A file that has been written to: times of files are too coarse to tell. */
    void forget(int fd)
    {
        struct stat file;
        const std::lock_guard lock(mutex_);
        const bool is_there = !pieces_.empty() && ::fstat(fd, &file) == 0;
        for (Piece &piece : pieces_) { piece.is_stale = piece.is_stale || (is_there && piece.is_of(file)); }
    }

    unsigned long long nr_hits() const { return nr_hits_; }

  private:
    struct Piece {
        struct stat file;
        size_t first, nr_pages, page; /* in the file, in all, and on the device */
        uint64_t used = 0;
        unsigned nr_users = 1;
        int fd = -1; /* to write to */
        bool is_loading = true, is_stale = false;
        bool is_of(const struct stat &other) const
        { return file.st_dev == other.st_dev && file.st_ino == other.st_ino; }
        ~Piece()
        {
            if (fd >= 0) { ::close(fd); }
        }
    };

    uint64_t address_of(const Piece &piece) const
    { return reinterpret_cast<uint64_t>(pages_.get()) + piece.page * page_bytes; }

    Piece *owner_of(uint64_t address)
    {
        for (Piece &piece : pieces_) {
            if (piece.nr_users && address - address_of(piece) < piece.nr_pages * page_bytes) { return &piece; }
        }
        return nullptr;
    }

    Piece *find(const struct stat &file, const Line &line)
    {
        for (Piece &piece : pieces_) {
            const timespec &changed = piece.file.st_mtim;
            const bool is_same = piece.is_of(file) && !piece.is_stale && changed.tv_sec == file.st_mtim.tv_sec &&
                                 changed.tv_nsec == file.st_mtim.tv_nsec;
            if (is_same && piece.first <= line.offset / page_bytes &&
                line.offset + line.bytes <= (piece.first + piece.nr_pages) * page_bytes) {
                piece.used = ++clock_;
                return &piece;
            }
        }
        return nullptr;
    }

    /* In the first gap that is large enough, or in one that what nobody uses leaves. */
    Piece *make(const struct stat &file, const Line &line)
    {
        const size_t first = line.offset / page_bytes;
        const size_t nr_pages = (line.offset + line.bytes + page_bytes - 1) / page_bytes - first;
        for (;;) {
            size_t page = 0;
            auto next = pieces_.begin(), oldest = pieces_.end();
            while (next != pieces_.end() && next->page - page < nr_pages) {
                page = next->page + next->nr_pages;
                ++next;
            }
            if (next != pieces_.end() || page + nr_pages <= nr_pages_) {
                return &*pieces_.insert(next, Piece{file, first, nr_pages, page, ++clock_});
            }
            for (auto each = pieces_.begin(); each != pieces_.end(); ++each) {
                if (each->nr_users == 0 && (oldest == pieces_.end() || each->used < oldest->used)) { oldest = each; }
            }
            if (oldest == pieces_.end()) { return nullptr; }
            pieces_.erase(oldest);
        }
    }

    int64_t load(Copier &copier, const Piece &piece, int fd) const
    try {
        const uint64_t offset = piece.first * page_bytes;
        return in_steps(piece.nr_pages * page_bytes, Copier::bytes_at_once, [&](size_t done, size_t left) {
            const int64_t read = read_all(fd, copier.staging(), left, offset + done);
            if (read >= 0) {
                std::fill(copier.staging() + read, copier.staging() + left, 0);
                copier.to_device(address_of(piece) + done, left);
            }
            return read < 0 ? read : int64_t(left);
        });
    } catch (const Error &) {
        return -EIO; /* who waits for the piece has to go on; the kernel's end says why */
    }

    void leave(Piece &piece)
    {
        if (--piece.nr_users == 0 && piece.is_stale) {
            pieces_.remove_if([&](const Piece &each) { return &each == &piece; });
        }
    }

    size_t nr_pages_;
    Memory pages_;
    std::mutex mutex_;
    std::condition_variable loaded_;
    std::list<Piece> pieces_; /* in the order of their places on the device */
    uint64_t clock_ = 0;
    std::atomic<unsigned long long> nr_hits_{0};
};
} // namespace gloop::detail
