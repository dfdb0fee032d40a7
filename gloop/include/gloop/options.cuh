/* What a program may choose, what it is told, and what host.launch throws. */
#pragma once

#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <sstream>
#include <stdexcept>
#include <string>

#include "wire.cuh"

namespace gloop
{
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
    template <class... Parts> static Error of(const Parts &...parts)
    {
        std::ostringstream text;
        ((text << "gloop: ") << ... << parts);
        return Error(text.str());
    }
};

struct Options {
    unsigned idle_us = 50;                      /* all blocks without work for so long end the kernel; 0: never */
    unsigned io_threads = 4;                    /* for files */
    size_t cache_bytes = 16 * 1024 * 1024;      /* of device memory, for fs::mmap */
    size_t per_thread_bytes = 0;                /* of a closure of postTaskPerThread */
    unsigned points = of_tests("GLOOP_POINTS"); /* after so many a block gives way; 0: when it is told to */
    static unsigned of_tests(const char *name) { return std::getenv(name) ? std::stoul(std::getenv(name)) : 0; }
};

/* At most so many threads in a block, and registers for so many blocks on a multiprocessor. 0: as it comes. */
template <unsigned most_threads = 0, unsigned nr_blocks = 0> struct Bounds {
    static constexpr unsigned threads = most_threads, blocks = nr_blocks;
};

struct Statistics {
    unsigned long long nr_kernels;  /* one for each launch, and one for each time that it went on */
    unsigned long long nr_requests; /* of files and sockets */
    unsigned long long nr_hits;     /* mappings that the page cache had */
    bool is_running;                /* a kernel is on the device, or on its way */
};

/* A path or an address as a value, for callbacks that get it from the host. */
struct Name {
    char text[detail::name_bytes];
    explicit Name(const std::string &name)
    {
        if (name.size() >= sizeof(text)) { throw Error::of("a name of more than 255 bytes: ", name); }
        std::memcpy(text, name.c_str(), name.size() + 1);
    }
};
} // namespace gloop
