/*
 * files copy FROM TO CHUNK: a chain that reads, changes and writes, by chunks, each from another byte on. files map
 * PATH: sums of a mapped file, twice, then of what was written to it meanwhile. files errors FOLDER: what calls that
 * fail return. files busy PATH: a page of writes from every block at once.
 */
#include <cstdio>
#include <gloop/gloop.cuh>
#include <string>

using Loop = gloop::DeviceLoop<>;

namespace
{

using Bytes = unsigned char;

__device__ void close_all(Loop *loop, int in, int out, long long *results)
{
    gloop::fs::close(loop, in, [=](Loop *loop, int first) {
        gloop::fs::close(loop, out, [=](Loop *, int second) {
            if (threadIdx.x == 0) {
                results[0] = first == 0 && second == 0;
            }
        });
    });
}

__device__ void copy(Loop *loop, int in, int out, long long offset, long long size, unsigned chunk, Bytes *buffer,
                     long long *results)
{
    if (offset == size) {
        gloop::fs::ftruncate(loop, out, size - 1, [=](Loop *loop, int) { close_all(loop, in, out, results); });
        return;
    }
    Bytes *piece = buffer + offset / chunk % 17;
    gloop::fs::read(loop, in, offset, chunk, piece, [=](Loop *loop, long long read) {
        for (long long byte = threadIdx.x; byte < read; byte += blockDim.x) {
            piece[byte] ^= 0x55;
        }
        gloop::fs::write(loop, out, offset, read, piece, [=](Loop *loop, long long written) {
            if (written > 0) {
                copy(loop, in, out, offset + written, size, chunk, buffer, results);
            }
        });
    });
}

void copy_file(gloop::HostLoop &host, const char *from, const char *to, unsigned chunk, long long *results)
{
    Bytes *buffer = nullptr;
    cudaMalloc(&buffer, chunk + 16);
    const gloop::Name source(from), target(to);
    host.launch(1, 128, [=] __device__(Loop *loop) {
        gloop::fs::open(loop, source.text, O_RDONLY, [=](Loop *loop, int in) {
            gloop::fs::open(loop, target.text, O_RDWR | O_CREAT | O_TRUNC, 0600, [=](Loop *loop, int out) {
                gloop::fs::fstat(loop, in, [=](Loop *loop, long long size) {
                    copy(loop, in, out, 0, size, chunk, buffer, results);
                });
            });
        });
    });
    std::printf("copied %lld\n", results[0]);
}

/* Each block sums a part of its own, page by page, from somewhere in a page on; then all of them the same page. */
__device__ void sum(Loop *loop, int fd, unsigned long long offset, unsigned long long end, unsigned long long *sums)
{
    constexpr unsigned long long at_once = 100000;
    if (offset >= end) {
        return;
    }
    const unsigned long long bytes = min(at_once, end - offset);
    gloop::fs::mmap(loop, fd, offset, bytes, PROT_READ, [=](Loop *loop, long long mapped) {
        if (mapped < 0) {
            sums[0] = mapped;
            return;
        }
        const auto *data = reinterpret_cast<const Bytes *>(mapped);
        unsigned long long mine = 0;
        for (unsigned long long byte = threadIdx.x; byte < bytes; byte += blockDim.x) {
            mine += data[byte] * ((offset + byte) % 251 + 1);
        }
        atomicAdd(sums, mine);
        gloop::fs::munmap(loop, data, [=](Loop *loop, int) { sum(loop, fd, offset + bytes, end, sums); });
    });
}

void sum_file(gloop::HostLoop &host, const gloop::Name path, unsigned long long *sums)
{
    sums[0] = 0;
    host.launch(4, 128, [=] __device__(Loop *loop) {
        gloop::fs::open(loop, path.text, O_RDONLY, [=](Loop *loop, int fd) {
            gloop::fs::fstat(loop, fd, [=](Loop *loop, unsigned long long size) {
                const unsigned long long part = (size + 3) / 4, block = loop->logicalBlockIdx().x;
                sum(loop, fd, block * part, min((block + 1) * part, size), sums);
            });
        });
    });
    std::printf("sum %lld\n", static_cast<long long>(sums[0]));
}

void map_file(gloop::HostLoop &host, const char *name, unsigned long long *sums)
{
    const gloop::Name path(name);
    sum_file(host, path, sums);
    const auto before = host.statistics().nr_hits;
    sum_file(host, path, sums);
    std::printf("had %d\n", host.statistics().nr_hits > before);
    host.launch(1, 32, [=] __device__(Loop *loop) {
        gloop::fs::open(loop, path.text, O_RDWR, [=](Loop *loop, int fd) {
            gloop::fs::mmap(loop, fd, 70000, 10, PROT_READ | PROT_WRITE, [=](Loop *loop, long long mapped) {
                auto *data = reinterpret_cast<Bytes *>(mapped);
                if (threadIdx.x < 5) {
                    data[threadIdx.x] = 'A';
                }
                gloop::fs::msync(loop, data, 10, [=](Loop *loop, int) {
                    if (threadIdx.x < 10) {
                        data[threadIdx.x] += threadIdx.x < 5 ? 0 : 1;
                    }
                    gloop::fs::munmap(loop, data, [=](Loop *loop, int) {});
                });
            });
        });
    });
    sum_file(host, path, sums);
}

void try_errors(gloop::HostLoop &host, const char *name, long long *results)
{
    const gloop::Name folder(name);
    host.launchWithSharedMemory(1, 32, 64, [=] __device__(Loop *loop) {
        extern __shared__ char shared[];
        const auto store = [=](int number) { return [=](Loop *, long long result) { results[number] = result; }; };
        char name[300];
        for (int byte = 0; byte < 299; byte++) {
            name[byte] = 'x';
        }
        name[256] = 0;
        gloop::fs::open(loop, name, O_RDONLY, store(0));
        name[255] = 0;
        gloop::fs::open(loop, name, O_RDONLY, store(1)); /* the host's: a file's name has 255 bytes as well */
        gloop::fs::open(loop, folder.text, O_WRONLY, store(2));
        gloop::fs::read(loop, 99, 0, 10, results, store(3));
        gloop::fs::read(loop, 0, 0, 10, shared, store(4));
        gloop::fs::mmap(loop, -1, 0, 10, PROT_READ, store(5));
        gloop::fs::munmap(loop, results, store(6));
        gloop::fs::ftruncate(loop, 99, 0, store(7));
        gloop::fs::close(loop, 99, store(8));
        gloop::fs::fstat(loop, 99, store(9));
        gloop::fs::read(loop, 0, 0, 10, nullptr, store(10));
        gloop::fs::write(loop, 0, 0, 100000, nullptr, store(11));
    });
    for (int number = 0; number < 12; number++) {
        std::printf("%lld ", results[number]);
    }
    std::printf("\n");
}

/* More requests at once than there are pages, of 32 slots of each block. */
void write_at_once(gloop::HostLoop &host, const char *name)
{
    const gloop::Name path(name);
    Bytes *data = nullptr;
    cudaMalloc(&data, 6 * 30 * 5000);
    host.launch(6, 64, [=] __device__(Loop *loop) {
        gloop::fs::open(loop, path.text, O_RDWR | O_CREAT, 0600, [=](Loop *loop, int fd) {
            for (unsigned number = 0; number < 30; number++) {
                const unsigned long long place = (loop->logicalBlockIdx().x * 30 + number) * 5000ull;
                for (unsigned byte = threadIdx.x; byte < 5000; byte += blockDim.x) {
                    data[place + byte] = (place + byte) % 241;
                }
                gloop::fs::write(loop, fd, place, 5000, data + place, [=](Loop *, int) {});
            }
        });
    });
}

} // namespace

int main(int nr_arguments, char **arguments)
{
    const std::string what = nr_arguments > 2 ? arguments[1] : "";
    long long *results = nullptr;
    cudaMallocHost(&results, 16 * sizeof(*results));
    std::fill_n(results, 16, 0);
    gloop::Options options;
    options.cache_bytes = 2 * 1024 * 1024;
    gloop::HostLoop host(options);
    if (what == "copy") {
        copy_file(host, arguments[2], arguments[3], std::stoul(arguments[4]), results);
    } else if (what == "map") {
        map_file(host, arguments[2], reinterpret_cast<unsigned long long *>(results));
    } else if (what == "errors") {
        try_errors(host, arguments[2], results);
    } else {
        write_at_once(host, arguments[2]);
    }
    return 0;
}
