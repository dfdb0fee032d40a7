/* What a program may choose, and what it is told. */
#ifndef GLOOP_OPTIONS_CUH
#define GLOOP_OPTIONS_CUH

#include <cstdlib>
#include <cstring>

#include "error.cuh"
#include "wire.cuh"

namespace gloop
{

struct Options {
    unsigned idle_us = 50;                      /* all blocks without work for so long end the kernel; 0: never */
    unsigned io_threads = 4;                    /* for files */
    std::size_t cache_bytes = 16 * 1024 * 1024; /* of device memory, for fs::mmap */
    std::size_t per_thread_bytes = 0;           /* of a closure of postTaskPerThread */
    unsigned points =
        points_of_environment(); /* after so many of them a block gives way; 0: when it is told to. For tests */

    static unsigned points_of_environment()
    {
        const char *text = std::getenv("GLOOP_POINTS");
        return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 0;
    }
};

struct Statistics {
    unsigned long long nr_kernels;  /* launched: one for each launch, and one for each time that it went on */
    unsigned long long nr_requests; /* of files and sockets */
    unsigned long long nr_hits;     /* mappings that the page cache had */
    bool is_running;                /* there is a kernel on the device, or on its way */
};

/* A path or an address as a value, for callbacks that get it from the host. */
struct Name {
    char text[detail::name_bytes];

    explicit Name(const std::string &name)
    {
        if (name.size() >= sizeof(text)) {
            throw Error("gloop: a name of more than 255 bytes: " + name);
        }
        std::memcpy(text, name.c_str(), name.size() + 1);
    }
};

} // namespace gloop

#endif
