/* Pages of files in device memory, 64 KiB each. A piece is a run of pages that lie together, in the file and on the
 * device. Who uses its pages or its descriptor counts among its users. It stays when it has none, until its place is
 * needed, oldest use first, if the file's time will tell of changes. Wrong when: a file server's clock is behind. */
#pragma once

#include <condition_variable>
#include <list>

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
    std::atomic<unsigned long long> nr_hits{0};
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
        if (line.bytes > nr_pages_ * page_bytes) { return -ENOMEM; }
        const bool is_to_write = line.flags & PROT_WRITE;
        if (is_to_write && (fcntl(line.fd, F_GETFL) & O_ACCMODE) != O_RDWR) { return -EACCES; }
        std::unique_lock lock(mutex_);
        Piece *piece = find(file, line);
        if (!copier && (!piece || piece->is_loading)) { return 0; }
        for (; piece && piece->is_loading; piece = find(file, line)) { loaded_.wait(lock); }
        int64_t result = 0;
        if (piece) {
            nr_hits++;
            piece->nr_users++;
        } else if (!(piece = make(file, line))) {
            return -ENOMEM;
        } else {
            lock.unlock();
            const uint64_t bytes = piece->nr_pages * page_bytes, from = piece->first * page_bytes;
            result = or_eio([&] { return read_to_device(*copier, line.fd, address_of(*piece), bytes, from, true); });
            lock.lock();
            piece->is_loading = false;
            piece->is_stale |= result < 0;
            loaded_.notify_all();
        }
        if (result >= 0 && is_to_write && piece->fd < 0) {
            result = piece->fd = int(or_errno(fcntl(line.fd, F_DUPFD_CLOEXEC, 0)));
        }
        if (result < 0) { leave(*piece); }
        return result < 0 ? result : int64_t(address_of(*piece) + line.offset - piece->first * page_bytes);
    }

    int64_t sync(Copier &copier, const Line &line)
    {
        std::unique_lock lock(mutex_);
        Piece *piece = owner_of(line.address);
        if (!piece) { return -EINVAL; }
        struct stat file = {};
        int64_t result = piece->fd < 0 ? 0 : or_errno(::fstat(piece->fd, &file));
        const uint64_t place = line.address - address_of(*piece), offset = piece->first * page_bytes + place;
        uint64_t bytes = std::min(line.bytes, piece->nr_pages * page_bytes - place);
        if (offset < uint64_t(file.st_size)) {
            bytes = std::min<uint64_t>(bytes, file.st_size - offset);
            piece->nr_users++;
            expect_write(*piece, file, offset, bytes);
            lock.unlock();
            result = or_eio([&] { return write_from_device(copier, piece->fd, line.address, bytes, offset); });
            lock.lock();
            leave(*piece);
        }
        return std::min<int64_t>(result, 0);
    }

    int64_t unmap(uint64_t address)
    {
        const std::lock_guard lock(mutex_);
        Piece *piece = owner_of(address);
        return piece ? leave(*piece), 0 : -EINVAL;
    }

    /* A file that has been written to: its time may be too coarse to tell. */
    void forget(int fd)
    {
        struct stat file;
        const std::lock_guard lock(mutex_);
        const bool is_there = !pieces_.empty() && ::fstat(fd, &file) == 0;
        for (Piece &piece : pieces_) { piece.is_stale = piece.is_stale || (is_there && piece.is_of(file)); }
    }

  private:
    struct Piece {
        struct stat file;
        size_t first, nr_pages, page; /* in the file, in all, and on the device */
        uint64_t used = 0;
        bool is_young; /* a file's time may stand still for 10 ms, in which it is written to again: it does not stay */
        unsigned nr_users = 1;
        int fd = -1; /* to write to */
        bool is_loading = true, is_stale = false;
        bool is_written = false; /* by msync, so that the file's time says nothing: it does not stay */
        bool is_of(const struct stat &it) const { return file.st_dev == it.st_dev && file.st_ino == it.st_ino; }
        bool is_as(const struct stat &now) const
        {
            const bool is_same = file.st_size == now.st_size && !memcmp(&file.st_mtim, &now.st_mtim, sizeof(timespec));
            return is_of(now) && !is_stale && (is_written || is_same);
        }
        ~Piece() { (void)(fd < 0 || ::close(fd)); }
    };

    uint64_t address_of(const Piece &piece) const
    { return reinterpret_cast<uint64_t>(pages_.get()) + piece.page * page_bytes; }

    Piece *owner_of(uint64_t address)
    {
        for (Piece &piece : pieces_) {
            if (piece.nr_users && !piece.is_loading && address - address_of(piece) < piece.nr_pages * page_bytes) {
                return &piece;
            }
        }
        return nullptr;
    }

    Piece *find(const struct stat &file, const Line &line)
    {
        for (Piece &piece : pieces_) {
            if (piece.is_as(file) && piece.first <= line.offset / page_bytes &&
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
        timespec now, then = file.st_mtim;
        clock_gettime(CLOCK_REALTIME, &now);
        const bool is_young = double(now.tv_sec - then.tv_sec) + 1e-9 * double(now.tv_nsec - then.tv_nsec) < 0.02;
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
                return &*pieces_.insert(next, Piece{file, first, nr_pages, page, ++clock_, is_young});
            }
            for (auto each = pieces_.begin(); each != pieces_.end(); ++each) {
                if (each->nr_users == 0 && (oldest == pieces_.end() || each->used < oldest->used)) { oldest = each; }
            }
            if (oldest == pieces_.end()) { return nullptr; }
            pieces_.erase(oldest);
        }
    }

    /* Who has a piece, or waits for it, has to go on; the kernel's end says why. */
    template <class Copy> static int64_t or_eio(const Copy &copy)
    try {
        return copy();
    } catch (const Error &) {
        return -EIO;
    }

    /* By msync of a piece: the file's other ones are as good as before, but for pages that lie in two. */
    void expect_write(const Piece &piece, const struct stat &file, uint64_t offset, uint64_t bytes)
    {
        for (Piece &each : pieces_) {
            const uint64_t begin = each.first * page_bytes, end = begin + each.nr_pages * page_bytes;
            each.is_written |= each.nr_users && each.is_as(file);
            each.is_stale |= &each != &piece && each.is_of(file) && begin < offset + bytes && offset < end;
        }
    }

    void leave(Piece &piece)
    {
        if (--piece.nr_users == 0 && (piece.is_stale || piece.is_written || piece.is_young)) {
            pieces_.remove_if([&](const Piece &each) { return &each == &piece; });
        }
    }

    size_t nr_pages_;
    Memory pages_;
    std::mutex mutex_;
    std::condition_variable loaded_;
    std::list<Piece> pieces_; /* in the order of their places on the device */
    uint64_t clock_ = 0;
};
} // namespace gloop::detail
