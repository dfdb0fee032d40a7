/*
 * What the page cache promises, by a file that is as large as the cache. mappings refused PATH: what cannot be
 * mapped. mappings evicted PATH: pages that are needed for others. mappings shared PATH: whether mappings are the same
 * pages, also of blocks, and after msync. mappings changed PATH: what others write to the file is read again. mappings
 * closed PATH OTHER: a mapping ends, and its descriptor's number is another file's, while msync writes. mappings full
 * PATH: no descriptor is left.
 */
#include <cstdio>
#include <gloop/gloop.cuh>
#include <string>
#include <sys/resource.h>
#include <vector>

using Loop = gloop::DeviceLoop<>;
namespace fs = gloop::fs;

namespace
{

constexpr unsigned long long page = 65536, file_bytes = 32 * page, large_bytes = 60 << 20;

void print(const long long *results, int nr)
{
    for (int number = 0; number < nr; number++) {
        std::printf("%lld%c", results[number], number + 1 < nr ? ' ' : '\n');
    }
}

void try_refused(gloop::HostLoop &host, const gloop::Name path, long long *results)
{
    host.launch(1, 32, [=] __device__(Loop *loop) {
        const auto store = [=](int number) { return [=](Loop *, long long result) { results[number] = result; }; };
        fs::open(loop, path.text, O_RDONLY, [=](Loop *loop, int fd) {
            fs::mmap(loop, fd, 0, page, PROT_READ, [=](Loop *loop, long long) {
                fs::mmap(loop, fd, 22, ~21ull, PROT_READ, store(0));
                fs::mmap(loop, fd, page, ~21ull, PROT_READ, store(1));
                fs::mmap(loop, fd, 0, file_bytes + 1, PROT_READ, store(2));
                fs::mmap(loop, fd, page, file_bytes, PROT_READ, store(3));
                fs::mmap(loop, fd, file_bytes, 1, PROT_READ, store(4));
                fs::mmap(loop, fd, 0, 10, PROT_READ | PROT_WRITE, store(5));
                fs::mmap(loop, fd, page, file_bytes - page, PROT_READ, store(6));
            });
        });
    });
    results[6] = results[6] > 0;
    print(results, 7);
}

/* Two halves fill the cache; a third mapping finds its place when one of them is unmapped. */
void evict(gloop::HostLoop &host, const gloop::Name path, long long *results)
{
    host.launch(1, 32, [=] __device__(Loop *loop) {
        fs::open(loop, path.text, O_RDONLY, [=](Loop *loop, int fd) {
            fs::mmap(loop, fd, 0, file_bytes / 2, PROT_READ, [=](Loop *loop, long long first) {
                fs::mmap(loop, fd, page, file_bytes / 2, PROT_READ, [=](Loop *loop, long long second) {
                    const auto *byte = reinterpret_cast<const unsigned char *>(second);
                    results[0] = byte[0], results[1] = byte[file_bytes / 2 - 1];
                    fs::mmap(loop, fd, 17 * page, page, PROT_READ, [=](Loop *loop, long long third) {
                        results[2] = third;
                        fs::munmap(loop, reinterpret_cast<void *>(first), [=](Loop *loop, int) {
                            fs::mmap(loop, fd, 17 * page, page, PROT_READ, [=](Loop *, long long third) {
                                results[3] = *reinterpret_cast<const unsigned char *>(third);
                                results[4] = byte[0];
                            });
                        });
                    });
                });
            });
        });
    });
    print(results, 5);
}

/* Blocks map the same pages, and a part of them; the first one writes and calls msync, and maps again. */
void share(gloop::HostLoop &host, const gloop::Name path, long long *results)
{
    host.launch(3, 32, [=] __device__(Loop *loop) {
        const unsigned block = loop->logicalBlockIdx().x;
        fs::open(loop, path.text, O_RDWR, [=](Loop *loop, int fd) {
            fs::mmap(loop, fd, 0, 9 * page, PROT_READ | PROT_WRITE,
                     [=](Loop *, long long mapped) { results[block] = mapped; });
        });
    });
    host.launch(1, 32, [=] __device__(Loop *loop) {
        fs::open(loop, path.text, O_RDWR, [=](Loop *loop, int fd) {
            auto *data = reinterpret_cast<unsigned char *>(results[0]);
            data[5] = 'S';
            fs::mmap(loop, fd, 20 * page, page, PROT_READ, [=](Loop *loop, long long other) {
                fs::msync(loop, data, 100, [=](Loop *loop, long long result) {
                    results[3] = result;
                    fs::mmap(loop, fd, 7 * page, page, PROT_READ, [=](Loop *, long long part) { results[4] = part; });
                    fs::mmap(loop, fd, 0, 100, PROT_READ, [=](Loop *, long long again) { results[5] = again; });
                    fs::mmap(loop, fd, 20 * page, 9, PROT_READ,
                             [=](Loop *, long long again) { results[6] = again == other; });
                });
            });
        });
    });
    const long long first = results[0];
    for (int number : {0, 1, 2, 4, 5}) {
        results[number] -= first;
    }
    print(results, 7);
}

/* The first byte, and one behind it, as a launch of its own sees them in the file. */
int seen(gloop::HostLoop &host, const gloop::Name path, unsigned long long at, long long *results)
{
    host.launch(1, 32, [=] __device__(Loop *loop) {
        fs::open(loop, path.text, O_RDONLY, [=](Loop *loop, int fd) {
            fs::mmap(loop, fd, 0, at + 1, PROT_READ, [=](Loop *loop, long long mapped) {
                results[0] = reinterpret_cast<const unsigned char *>(mapped)[at];
                fs::munmap(loop, reinterpret_cast<void *>(mapped),
                           [=](Loop *loop, int) { fs::close(loop, fd, [](Loop *, int) {}); });
            });
        });
    });
    return int(results[0]);
}

/* A byte is written, and the file's time does not change: it is ahead, or long ago. */
void write_at(const char *path, off_t at, unsigned char byte, bool is_young)
{
    const int fd = open(path, O_RDWR);
    const timespec when = {is_young ? 4000000000 : 1000, 0}, times[] = {when, when};
    if (pwrite(fd, &byte, 1, at) != 1 || futimens(fd, times) != 0) {
        std::perror(path);
    }
    close(fd);
}

void change(gloop::HostLoop &host, const char *path, long long *results)
{
    for (int byte = 1; byte < 4; byte++) {
        write_at(path, 0, byte, true);
        std::printf("%d ", seen(host, gloop::Name(path), 0, results));
    }
    truncate(path, 10);
    write_at(path, 0, 4, false);
    std::printf("%d ", seen(host, gloop::Name(path), 0, results));
    write_at(path, 20, 5, false);
    std::printf("%d\n", seen(host, gloop::Name(path), 20, results));
}

/* By many copies, so that the second msync takes longer than what follows it: it has begun when fstat is answered. */
void close_meanwhile(gloop::HostLoop &host, const gloop::Name path, const gloop::Name other, long long *results)
{
    host.launch(1, 32, [=] __device__(Loop *loop) {
        fs::open(loop, path.text, O_RDWR, [=](Loop *loop, int fd) {
            fs::mmap(loop, fd, 0, large_bytes, PROT_READ | PROT_WRITE, [=](Loop *loop, long long mapped) {
                auto *data = reinterpret_cast<unsigned char *>(mapped);
                data[threadIdx.x] = 'Z';
                fs::msync(loop, data, 100, [=](Loop *loop, int) {
                    fs::msync(loop, data, large_bytes, [=](Loop *, int result) { results[0] = result; });
                    fs::fstat(loop, fd, [=](Loop *loop, int) {
                        fs::munmap(loop, data, [=](Loop *loop, int result) {
                            results[1] = result;
                            fs::open(loop, other.text, O_RDWR | O_CREAT, 0600,
                                     [=](Loop *, int result) { results[2] = result > 0; });
                        });
                    });
                });
            });
        });
    });
    print(results, 3);
}

void fill_descriptors(gloop::HostLoop &host, const gloop::Name path, long long *results)
{
    host.launch(1, 32, [=] __device__(Loop *loop) {
        fs::open(loop, path.text, O_RDWR, [=](Loop *, int fd) { results[0] = fd; });
    });
    rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    const int free = dup(0);
    close(free);
    const rlimit none = {rlim_t(free), before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    host.launch(1, 32, [=] __device__(Loop *loop) {
        fs::mmap(loop, int(results[0]), 0, page, PROT_READ | PROT_WRITE,
                 [=](Loop *, long long result) { results[1] = result; });
        gloop::net::bind(loop, "127.0.0.1", 0, [=](Loop *, long long result) { results[2] = result; });
    });
    setrlimit(RLIMIT_NOFILE, &before);
    print(results + 1, 2);
}

} // namespace

int main(int nr_arguments, char **arguments)
{
    const std::string what = nr_arguments > 2 ? arguments[1] : "";
    long long *results = nullptr;
    cudaMallocHost(&results, 16 * sizeof(*results));
    std::fill_n(results, 16, 0);
    gloop::Options options;
    options.cache_bytes = what == "closed" ? large_bytes : file_bytes;
    gloop::HostLoop host(options);
    const gloop::Name path(arguments[2]);
    if (what == "refused") {
        try_refused(host, path, results);
    } else if (what == "evicted") {
        evict(host, path, results);
    } else if (what == "shared") {
        share(host, path, results);
    } else if (what == "changed") {
        change(host, path.text, results);
    } else if (what == "closed") {
        close_meanwhile(host, path, gloop::Name(arguments[3]), results);
    } else {
        fill_descriptors(host, path, results);
    }
    return 0;
}
